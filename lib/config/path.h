// Paths to values of a config, as overrides and expressions write them:
//
//   fit.epochs
//   model.layers.d1.units          layers by name, or by index from 0
//   distribution.layout_map["d1/kernel"]
//   distribution.device_mesh.shape[1]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "config/schema.h"
#include "config/yaml.h"

namespace meshtrain {

// The parts of a path; nothing when it is malformed.
std::optional<std::vector<std::string>> parse_path(std::string_view text);

// The node at the path, or nullptr. Layers are found by their names, automatic ones included;
// arguments with or without the class between ("compile.optimizer.Adam.beta_1").
const YamlNode* find_path(const YamlNode& root, const std::vector<std::string>& path);
// The default of a field of the schema that the file does not set ("fit.epochs").
std::optional<std::string> default_at(const std::vector<std::string>& path);

// Whether null is a value of its own, and another one taken where nothing is written: where it is
// laid over a value it is set, and for others removes it.
bool null_is_value(const Spec* spec);

// One change of a config from outside the file's own structure.
struct Override {
  enum class Kind : uint8_t { kSet, kAppend, kRemove } kind = Kind::kSet;
  std::string path;
  SourceLoc path_loc;
  YamlNode value;
  std::string value_text;  // as written, for `4,2` where a list is wanted; "" from a file
};

// From the command line: "fit.epochs=20", "~key", "list+=item". E140 when it is none of these, or
// out of the limits.
std::optional<Override> parse_override(const std::string& word, Diagnostics& diagnostics);
// A flag that stands for a key.
std::optional<Override> flag_override(const std::string& flag, const std::string& key,
                                      const std::string& value, Diagnostics& diagnostics);

// Changes `root`. Unknown keys and paths that lead nowhere: E111, E140.
void apply_override(YamlNode& root, Override change, Diagnostics& diagnostics);

}  // namespace meshtrain
