// One config laid over another: maps merge, lists and single values are replaced whole, `null`
// removes what is not null_is_value(). An object keeps its arguments when the class stays the same
// or only arguments of it are given, else it is replaced.
#pragma once

#include <string>

#include "config/schema.h"
#include "config/variables.h"
#include "config/yaml.h"

namespace meshtrain {

void merge_config(YamlNode& base, YamlNode over);

// Reads `path`, and what it extends, as one tree without `extends` and `override`; `profiles` stay.
// Problems go to `diagnostics` (E100-E110, E130).
YamlNode load_file(const std::string& path, Diagnostics& diagnostics);

// Applies the changes of a map `path: value` as `override:` and `profiles:` have them.
void apply_changes(YamlNode& root, const YamlNode& changes, const std::string& owner,
                   Diagnostics& diagnostics);
// Adds what check_variables() says of such changes, without applying them.
void check_changed_variables(const YamlNode& root, const YamlNode& changes, const UsedNames& used,
                             Diagnostics& diagnostics);

}  // namespace meshtrain
