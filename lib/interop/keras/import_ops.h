// Operations (keras.ops, `x + y`) in Keras' graphs, as layers that compute the same.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace meshtrain {

// Whether an entry of a functional model's `layers` is an operation: Keras keeps no weights for it.
bool is_operation(const nlohmann::json& layer);

// {class_name, config} of the layer that stands for one call of the operation with these arguments,
// `tensors` of which are tensors; or the reason why there is none.
std::optional<nlohmann::json> layer_of_operation(const nlohmann::json& operation,
                                                 const std::vector<nlohmann::json>& arguments,
                                                 size_t tensors, std::string& problem);

}  // namespace meshtrain
