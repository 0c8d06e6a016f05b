// Runs graphs of steps that share variables. The interpreter is one runner; ProgramRunner runs them
// as a training does.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "comm/process_group.h"
#include "exec/executor.h"
#include "ir/graph.h"
#include "mesh/device_mesh.h"
#include "tensor/host_tensor.h"

namespace meshtrain::testing {

using Tensors = std::map<std::string, HostTensor>;

class GraphRunner {
 public:
  virtual ~GraphRunner() = default;
  // Prepares a graph of this runner's variables; returns its number for run().
  virtual int add(Graph graph) = 0;
  // Runs one step and returns its outputs by name. Inputs that the step does not read are ignored.
  virtual Tensors run(int number, const Tensors& inputs) = 0;
  virtual HostTensor read(int variable) const = 0;
  virtual void write(int variable, const HostTensor& value) = 0;
};

// How a graph is split.
struct Layout {
  DeviceMesh mesh;
  AxisList batch_axes;
  int zero = 0;
  AxisList zero_axes;
  std::vector<Sharding> weights;  // by variable; ignored for other roles
  std::map<std::string, Sharding> pins;
};

// Where a step runs.
struct Place {
  std::shared_ptr<gpu::Device> device = nullptr;  // null: the processor
  std::shared_ptr<ProcessGroup> group = nullptr;  // null: the only process
  bool fixed_reductions = false;
  std::function<void()> before_second_step = nullptr;
};

// Compiles graphs with all passes and runs their programs on virtual devices, as Engine does.
class ProgramRunner : public GraphRunner {
 public:
  // `regather_above`: see CompileOptions.
  ProgramRunner(std::vector<Variable> variables, const Layout& layout, const Place& place = {},
                int64_t regather_above = INT64_MAX);
  // Throws when a collective has no cause or the memory plan is wrong. A batch that the batch axes
  // do not divide is replicated.
  int add(Graph graph) override;
  Tensors run(int number, const Tensors& inputs) override;
  HostTensor read(int variable) const override { return store_->read(variable); }
  void write(int variable, const HostTensor& value) override { store_->write(variable, value); }

 private:
  Layout layout_;
  Place place_;
  int64_t regather_above_;
  std::vector<Variable> variables_;
  std::shared_ptr<WorkerPool> workers_;
  std::unique_ptr<VariableStore> store_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

}  // namespace meshtrain::testing
