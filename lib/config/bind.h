// From the typed tree of the schema to the structs of config.h, with the checks that look at more
// than one value. Nothing here depends on tensor shapes, devices or files of data.
#pragma once

#include <string>

#include "config/config.h"
#include "config/yaml.h"

namespace meshtrain {

// The entry of a Dict; throws InternalError when the schema has no such field.
ConfigValue& field_of(ConfigValue& dict, std::string_view name);

template <class T>
Located<T> located(const ConfigValue& value, T converted) {
  return {std::move(converted), value.is_default ? SourceLoc() : value.loc};
}

// Fills in what follows from other values (the names of layers and axes, the type of distribution),
// in `tree` too, and returns the whole. `first_file` is the path of the first config file; `root`
// the tree before typing, for the places of keys.
Config bind_config(ConfigValue& tree, const YamlNode& root, const std::string& first_file,
                   bool require_data, Diagnostics& diagnostics);

// Parts of it.
void bind_distribution(ConfigValue& tree, const YamlNode* node, DistributionConfig& out,
                       Diagnostics& diagnostics);  // bind_distribution.cc
// Adds an E205 for each axis of a layout that is none of the mesh's, where those could be read.
void check_axis_names(const DistributionConfig& distribution, Diagnostics& diagnostics);
void bind_model(ConfigValue& tree, ModelConfig& out, Diagnostics& diagnostics);  // bind_model.cc
void bind_compile(ConfigValue& tree, const ModelConfig& model, CompileConfig& out,
                  Diagnostics& diagnostics);  // bind_compile.cc
void bind_data(ConfigValue& tree, const std::string& first_file, DataConfig& out,
               Diagnostics& diagnostics);                                    // bind_data.cc
void bind_run(ConfigValue& tree, RunConfig& out, Diagnostics& diagnostics);  // bind_run.cc
void bind_checkpoint(ConfigValue& tree, CheckpointConfig& out,
                     Diagnostics& diagnostics);  // bind_run.cc
void bind_callbacks(ConfigValue& tree, Config& config,
                    Diagnostics& diagnostics);  // bind_callbacks.cc

// A path written in a config, from here: relative to the folder of the file it stands in; one from
// the command line is taken from the current folder if it exists there, else from `folder`.
std::string resolve_path(const ConfigValue& path, const std::string& folder);
std::string folder_of(const std::string& file);

}  // namespace meshtrain
