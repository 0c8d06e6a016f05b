// The keys in which two configs differ.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshtrain {

// Returns the values of a resolved config by path, in file order. A list of scalars is one value.
std::vector<std::pair<std::string, std::string>> config_values(std::string_view text);

// A key of the config that has another value than in the checkpoint.
struct ConfigChange {
  std::string key;            // "fit.epochs"
  std::string before, after;  // as YAML; empty when the key was added or removed
  // The object around the key, when the whole object was added or removed:
  // "callbacks.0.EarlyStopping"; else empty.
  std::string object = {};
};
// Returns the changes between two resolved configs (show_config), in the order of the second.
std::vector<ConfigChange> config_changes(std::string_view before, std::string_view after);
// Returns "fit.epochs  2 -> 4", a line for each key, and one for each added or removed object.
std::string changes_text(const std::vector<ConfigChange>& changes);

// Whether `key` is `prefix`, or a key below it.
bool is_key_below(const std::string& key, std::string_view prefix);

}  // namespace meshtrain
