// Config objects and tensors as the goldens of tests/reference describe them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "unit/nn/nn_testing.h"

namespace meshtrain::testing {

// Booleans, numbers, texts and lists as they are; {class_name, config} is a schedule.
ConfigValue value_from_json(const nlohmann::json& json);
// The class of the catalogue with the arguments of a golden's "config"; fails the test when it has
// no such argument.
ConfigObject object_from_json(Category category, const std::string& name,
                              const nlohmann::json& config);
// float64, signed(seed) of tests/support/splitmix.h.
HostTensor signed_doubles(uint64_t seed, const Shape& shape, float scale = 1);

inline std::vector<double> list_of(const nlohmann::json& json) {
  return json.get<std::vector<double>>();
}

}  // namespace meshtrain::testing
