// The steps from files and words to typed values, shared by load_config and show_config.
#pragma once

#include "config/load.h"
#include "config/yaml.h"

namespace meshtrain {

struct ResolvedConfig {
  YamlNode root;     // merged, overridden, evaluated
  ConfigValue tree;  // every key of the schema, typed; derived defaults filled in
  Config config;
};

// Throws ConfigError with every problem found; warnings are in `config.warnings`.
ResolvedConfig resolve_config(const LoadOptions& options);

}  // namespace meshtrain
