// Which types a model computes with: dtype policies, and the loss scale that float16 needs. Source:
// Keras 3 dtype_policies/dtype_policy.py and dtype_policy_map.py.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "tensor/dtype.h"

namespace meshtrain {

// What a layer computes in, and what its weights are stored in; a layer casts its weights and its
// floating inputs when it uses them.
struct DTypePolicy {
  DType compute = DType::kFloat32;
  DType variable = DType::kFloat32;

  DTypePolicy() = default;
  // Both the same, as with the policy of that name.
  DTypePolicy(DType dtype) : compute(dtype), variable(dtype) {}  // NOLINT: a dtype is a policy
  DTypePolicy(DType computed, DType stored) : compute(computed), variable(stored) {}

  // What Keras' floatx is here: losses, metrics and inputs are float32, float64 with that policy.
  DType floatx() const { return compute == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }
};

// "float32", "float64", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16".
const std::vector<std::string>& dtype_policy_names();
// Throws InternalError for any other name.
DTypePolicy dtype_policy(std::string_view name);
std::string dtype_policy_name(const DTypePolicy& policy);

// The type that sums and normalizations of `dtype` are computed in: at least float32.
inline DType at_least_float32(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// dtype_policy_map and compile.auto_scale_loss: layers that a key of the map names or matches as a
// whole get its policy as their argument `dtype`, unless they have one; the optimizer of a
// mixed_float16 model goes into a LossScaleOptimizer. E113 for policies that there are not, E121
// for keys that act on nothing and for two keys on one layer.
void bind_precision(const ConfigValue& tree, Config& config, Diagnostics& diagnostics);

}  // namespace meshtrain
