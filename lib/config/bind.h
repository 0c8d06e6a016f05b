// From the typed tree of the schema to the structs of config.h: the keys that are no plain member
// (layers, losses, sources, layouts), what follows from other values, and the checks that look at
// more than one value. Nothing here depends on tensor shapes, devices or files of data.
#pragma once

#include <string>

#include "config/config.h"
#include "config/yaml.h"

namespace meshtrain {

template <class T>
Located<T> located(const ConfigValue& value, T converted) {
  return {std::move(converted), value.is_default ? SourceLoc() : value.loc};
}

// Where the config gives null, `derived` takes its place, in the tree too.
inline void derive(ConfigValue& value, Located<std::string>& member, std::string derived) {
  if (value.is_null()) {
    member = {derived, {}};
    value.data = std::move(derived);
    value.is_default = true;
  }
}

// Fills in what follows from other values (the names of layers and axes, the type of distribution),
// in `tree` too, and returns the whole. `first_file` is the path of the first config file; `root`
// the tree before typing, for the places of keys.
Config bind_config(ConfigValue& tree, const YamlNode& root, const std::string& first_file,
                   bool require_data, Diagnostics& diagnostics);

// Parts of it; `out` has the plain members already.
void bind_distribution(ConfigValue& tree, const YamlNode* node, DistributionConfig& out,
                       Diagnostics& diagnostics);  // bind_distribution.cc
// Adds an E205 for each axis of a layout that is none of the mesh's, where those could be read.
void check_axis_names(const DistributionConfig& distribution, Diagnostics& diagnostics);
void bind_model(ConfigValue& tree, ModelConfig& out, Diagnostics& diagnostics);  // bind_model.cc
// model.lora; E201 for what is no pattern (bind_lora.cc).
void bind_lora(const ConfigValue& map, ModelConfig& out, Diagnostics& diagnostics);
// model.remat; E113 and E121 for what it does not allow or match (bind_remat.cc).
void bind_remat(const ConfigValue& map, ModelConfig& out, Diagnostics& diagnostics);
void bind_compile(ConfigValue& tree, const ModelConfig& model, CompileConfig& out,
                  Diagnostics& diagnostics);  // bind_compile.cc
void bind_data(ConfigValue& tree, const std::string& first_file, Config& config,
               Diagnostics& diagnostics);  // bind_data.cc
void bind_callbacks(ConfigValue& tree, Config& config,
                    Diagnostics& diagnostics);  // bind_callbacks.cc

}  // namespace meshtrain
