// Steps of an optimizer in the interpreter, for tests that compare them with Keras'.
#pragma once

#include <string>
#include <vector>

#include "nn/compile.h"
#include "nn_testing.h"
#include "tensor/host_tensor.h"

namespace meshtrain::testing {

// Everything that an optimizer changes.
struct OptimizerState {
  std::vector<std::string> paths;  // of the weights
  std::vector<HostTensor> weights;
  std::vector<std::vector<HostTensor>> slots;
  std::vector<HostTensor> scalars;
  int64_t iteration = 0;
};

OptimizerState start_state(const Optimizer& optimizer, std::vector<std::string> paths,
                           std::vector<HostTensor> weights);
// One apply; grads[i] null: the weight has no gradient. `constraint` acts on every weight.
OptimizerState apply_step(const Optimizer& optimizer, const OptimizerState& before,
                          const std::vector<const HostTensor*>& grads,
                          const ConfigObject* constraint = nullptr);

}  // namespace meshtrain::testing
