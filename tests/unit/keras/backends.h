// Where the goldens of Keras run: in the interpreter, and as programs that passed all passes, on
// the processor and on a GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "support/layout_case.h"

namespace meshtrain::testing {

// kMesh, kGpuMesh: 2 x 2 virtual devices. Batches are split over the first axis, weights over the
// second. Optimizer states are split over both (ZeRO-2).
enum class Backend { kInterpreter, kOneDevice, kMesh, kGpu, kGpuMesh };

std::unique_ptr<GraphRunner> make_runner(Backend backend, std::vector<Variable> variables);

// A graph under construction and the tensors that it is fed.
struct Step {
  explicit Step(std::vector<Variable> variables = {}) { graph.variables = std::move(variables); }

  ValueId batch(const HostTensor& rows) { return input(rows, true); }  // of samples
  ValueId whole(const HostTensor& tensor) { return input(tensor, false); }
  ValueId input(const HostTensor& tensor, bool is_batch);

  Graph graph;
  Builder b{graph};
  Tensors inputs;
};

// Outputs "0", "1", ... of the graph that `make` builds from rows of samples and then weights.
using MakeValues = std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)>;
Tensors run_once(Backend backend, const std::vector<const HostTensor*>& batches,
                 const std::vector<const HostTensor*>& weights, const MakeValues& make);

// Runs a case on all backends, on a GPU if the case is in the sample. `check` compares the results
// with Keras. All results also equal those of the interpreter within `tolerance`.
void on_backends(double tolerance, const std::function<Tensors(Backend)>& run,
                 const std::function<void(const Tensors&)>& check);

}  // namespace meshtrain::testing
