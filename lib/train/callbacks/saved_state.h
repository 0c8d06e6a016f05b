// Values in a callback's state: numbers keep every bit, NaN and infinity included.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"

namespace meshtrain {

inline nlohmann::json saved_number(const std::optional<double>& value) {
  return value ? nlohmann::json(format_shortest(*value)) : nlohmann::json();
}

inline std::optional<double> read_number(const nlohmann::json& saved) {
  return saved.is_string() ? std::optional(std::stod(saved.get<std::string>())) : std::nullopt;
}

}  // namespace meshtrain
