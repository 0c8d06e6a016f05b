// The sections of a config file. Names are those of the calls a Keras user makes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/spec.h"

namespace meshtrain {

const Section& root_section();

// Where `key` is a field, when it is not one of the section where it was found: "data.shuffle".
std::optional<std::string> section_with_key(std::string_view key);

// Whether a path of keys begins at the top level and leads somewhere: "fit.epochs",
// "compile.optimizer.learning_rate" (what lies within an object is not looked at).
bool is_known_key(std::string_view path);

}  // namespace meshtrain
