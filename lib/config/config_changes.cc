#include "config/config_changes.h"

#include <algorithm>
#include <map>

#include "base/columns.h"
#include "base/text.h"
#include "config/run_files.h"
#include "config/yaml.h"

namespace meshtrain {
namespace {

using FlatConfig = std::vector<std::pair<std::string, std::string>>;

std::string inline_text(const YamlNode& node) {
  if (node.is_list()) {
    std::vector<std::string> parts;
    for (const YamlNode& child : node.children) {
      parts.push_back(inline_text(child));
    }
    return "[" + join(parts, ", ") + "]";
  }
  return node.is_null() ? "null" : node.text;
}

void flatten(const YamlNode& node, const std::string& path, FlatConfig& out) {
  const bool has_maps = std::any_of(node.children.begin(), node.children.end(),
                                    [](const YamlNode& child) { return child.is_map(); });
  if (node.is_map() && !node.children.empty()) {
    for (const YamlNode& child : node.children) {
      flatten(child, path.empty() ? child.key : path + "." + child.key, out);
    }
  } else if (node.is_list() && has_maps) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      flatten(node.children[i], fmt::format("{}.{}", path, i), out);
    }
  } else {
    out.emplace_back(path, node.is_map() ? "{}" : inline_text(node));
  }
}

using ValueMap = std::map<std::string, std::string>;

// Returns whether a key of `values` is `path` or is below it.
bool has_below(const ValueMap& values, const std::string& path) {
  const auto below = values.lower_bound(path + ".");
  return values.count(path) > 0 || (below != values.end() && is_key_below(below->first, path));
}

// The largest part of the config around `key` of `values` of which `others` has nothing; then, as
// far as all of it is below one more word (the class in an entry of a list), with that word.
std::string object_of(const std::string& key, const ValueMap& values, const ValueMap& others) {
  size_t end = key.find('.');
  while (end != std::string::npos && has_below(others, key.substr(0, end))) {
    end = key.find('.', end + 1);
  }
  if (end == std::string::npos) {
    return "";
  }
  for (size_t next = key.find('.', end + 1); next != std::string::npos;
       next = key.find('.', end + 1)) {
    const std::string inner = key.substr(0, next);
    const auto last = values.lower_bound(key.substr(0, end) + "/");  // "/" follows "."
    if (!is_key_below(values.lower_bound(key.substr(0, end) + ".")->first, inner) ||
        !is_key_below(std::prev(last)->first, inner)) {
      break;
    }
    end = next;
  }
  return key.substr(0, end);
}

}  // namespace

bool is_key_below(const std::string& key, std::string_view prefix) {
  return starts_with(key, prefix) && (key.size() == prefix.size() || key[prefix.size()] == '.');
}

std::vector<std::pair<std::string, std::string>> config_values(std::string_view text) {
  Diagnostics diagnostics;
  const auto source =
      std::make_shared<SourceFile>(SourceFile{run_files::kResolved, std::string(text)});
  const std::optional<YamlNode> root = parse_yaml(source, diagnostics);
  FlatConfig out;
  if (root && root->is_map()) {
    flatten(*root, "", out);
  }
  return out;
}

std::vector<ConfigChange> config_changes(std::string_view before, std::string_view after) {
  const FlatConfig old_values = config_values(before), new_values = config_values(after);
  const ValueMap old_map(old_values.begin(), old_values.end());
  const ValueMap new_map(new_values.begin(), new_values.end());
  ValueMap rest = old_map;
  std::vector<ConfigChange> out;
  for (const auto& [key, value] : new_values) {
    const auto found = old_map.find(key);
    if (found == old_map.end()) {
      out.push_back({key, "", value, object_of(key, new_map, old_map)});
    } else if (found->second != value) {
      out.push_back({key, found->second, value});
    }
    rest.erase(key);
  }
  for (const auto& [key, value] : rest) {
    out.push_back({key, value, "", object_of(key, old_map, new_map)});
  }
  return out;
}

std::string changes_text(const std::vector<ConfigChange>& changes) {
  std::vector<std::vector<std::string>> rows;
  std::string object;
  for (const ConfigChange& change : changes) {
    // A key without a value; a class without arguments is something.
    const bool is_nothing = change.object.empty() && change.before + change.after == "null";
    if (is_nothing || (!object.empty() && change.object == object)) {
      continue;
    }
    object = change.object;
    rows.push_back(
        !object.empty()
            ? std::vector{"  " + object, std::string(change.before.empty() ? "new" : "gone")}
            : std::vector{"  " + change.key,
                          fmt::format("{} -> {}", change.before.empty() ? "(none)" : change.before,
                                      change.after.empty() ? "(none)" : change.after)});
  }
  return aligned_columns(rows);
}

}  // namespace meshtrain
