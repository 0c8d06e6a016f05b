// Operations (keras.ops, `x + y`) in Keras' graphs, as layers that compute the same.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace meshtrain {

// Whether an entry of a functional model's `layers` is an operation: Keras keeps no weights for it.
bool is_operation(const nlohmann::json& layer);

// {class_name, config} of the layer that stands for one call of the operation, with the `args` and
// `kwargs` of its node: an Activation, MergeSteps, SplitSteps or a Lambda; or the reason why there
// is none. `names`: of its tensors, in an expression. `part`: which tensor, of an operation that
// gives several.
std::optional<nlohmann::json> layer_of_operation(const nlohmann::json& operation,
                                                 const nlohmann::json& args,
                                                 const nlohmann::json& kwargs,
                                                 const std::vector<std::string>& names, size_t part,
                                                 std::string& problem);

}  // namespace meshtrain
