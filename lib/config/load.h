// From YAML files and command-line words to a Config.
//
// Order: read files -> merge -> environment references -> overrides -> expressions -> schema
// types -> semantic checks. All problems are collected and thrown together.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace meshtrain {

struct LoadOptions {
  std::vector<std::string> files;            // merged left to right; "-" is standard input
  std::shared_ptr<const SourceFile> source;  // a text in place of files
  std::vector<std::string> overrides;        // "fit.epochs=20", "~key", "list+=item"
  std::vector<std::pair<std::string, std::string>>
      flags;  // key, value; e.g. {"distribution.device_mesh.shape", "4x2"} for --mesh, shown as
              // that flag
  std::vector<std::string>
      flag_names;         // beside `flags`: "--mesh", or a variable that stands for it
  std::string overruled;  // what of the environment does not count, and why, in words; "": nothing
  std::string profile;
  std::string weights;  // sizes of vocabularies are those that these were trained with; "": none
  std::vector<std::string> sections;  // only these of the root are read; empty: all
  int64_t most_times = 0;             // of a Repeat, for estimates; 0: as many as it says
  bool require_data = true;  // false for subcommands that need only the model (plan, summary)
};

// "fit.epochs=2": overrides and flags, in this order.
std::vector<std::string> given_overrides(const LoadOptions& options);

// Throws ConfigError with every problem found.
Config load_config(const LoadOptions& options);

// Sets the mesh, whatever the files, words and flags say. Presets of layouts become rules for it.
LoadOptions on_mesh(LoadOptions options, const std::vector<int64_t>& shape,
                    const std::vector<std::string>& axis_names);

// The merged config as YAML. Each line ends with its origin ("# mlp.yaml:12", "# --mesh",
// "# default") when `with_origin`.
std::string show_config(const LoadOptions& options, bool with_origin);
// The same without what is the default anyway: it means the same.
std::string minimal_config(const LoadOptions& options);

// JSON Schema (draft 2020-12) of the config, for editors.
std::string json_schema();

}  // namespace meshtrain
