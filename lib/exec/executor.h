// Executor: runs a Program on the virtual CPU devices of this process.
//
// Devices are work, not threads: one pinned worker per core computes the pieces of each step; a
// collective is a function over all devices' buffers, summed in device order. Nothing is allocated
// in a step but within oneDNN's convolutions. The result does not depend on the number of workers.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/program.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

class WorkerPool;
std::shared_ptr<WorkerPool> make_worker_pool(int num_workers);  // 0: one per core

// Storage of variables, shared by all programs of a model. A variable has one buffer of
// mesh.size_of(axes) pieces, where `axes` are those of its storage layout.
class VariableStore {
 public:
  VariableStore(const DeviceMesh& mesh, std::vector<Variable> variables);
  int find(std::string_view path) const;  // kNone when absent
  const std::vector<Variable>& variables() const { return variables_; }
  std::byte* data(int variable);  // piece 0; pieces follow at piece_bytes(variable)
  int64_t piece_bytes(int variable) const;
  HostTensor read(int variable) const;                // the whole tensor
  void write(int variable, const HostTensor& value);  // scatters; dtype and shape must agree
  void fill(int variable, double value);
  int64_t total_bytes() const;

 private:
  DeviceMesh mesh_;
  std::vector<Variable> variables_;
  std::vector<HostTensor> storage_;  // (pieces, padded bytes)
};

class Executor {
 public:
  // Allocates the arena and prepares every kernel. The store must outlive the executor and hold
  // the program's variables under the same indices.
  Executor(Program program, std::shared_ptr<WorkerPool> workers, VariableStore& variables);
  ~Executor();

  const Program& program() const;
  // Writes the whole (global) tensor of an input; scattered to the pieces. `index` is into
  // Program::inputs. Data of `num_bytes` in the input's dtype, row-major.
  void set_input(int index, const void* data, size_t num_bytes);
  // For inputs whose pieces lie one after the other as the global tensor does (split over
  // dimension 0 or whole): memory to write the whole tensor into; nullptr otherwise.
  std::byte* input_data(int index);
  void run();
  // The whole tensor of an output (index into Program::outputs).
  HostTensor output(int index) const;
  double output_scalar(int index) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshtrain
