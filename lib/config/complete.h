// How an override that is being typed may end, for the completion of shells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/yaml.h"

namespace meshtrain {

// "fit.ep" -> "fit.epochs="; "fit" -> "fit."; "model.layers.d" -> "model.layers.d1.";
// "dtype_policy=mi" -> "dtype_policy=mixed_bfloat16", ... A word that ends with `.` or `=` has more
// to follow. `root`: the config that is overridden, whose layers, objects and variables are
// offered; null where none is known.
std::vector<std::string> complete_override(std::string_view word, const YamlNode* root);

}  // namespace meshtrain
