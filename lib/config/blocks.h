// `blocks:` of a config: named groups of layers with parameters, used as if they were layers.
//
//   blocks:
//     Residual:
//       params: {filters, strides: 1}      a parameter without a value must be given
//       inputs: [x]                        names of the inputs within the block
//       layers:
//         - Conv2D: {name: c1, filters: =filters, kernel_size: 3, strides: =strides}
//         - Add: {name: sum, inputs: [x, c1]}
//       outputs: sum                       the last layer when left out
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/yaml.h"

namespace meshtrain {

struct BlockDefinition {
  struct Parameter {
    std::string name;
    YamlNode default_value;
    bool is_required = false;
  };

  std::string name;
  SourceLoc loc;
  std::vector<Parameter> params;
  std::vector<std::string> inputs;  // empty: one input without a name
  std::vector<YamlNode> layers;
  YamlNode outputs;  // null: the last layer
  bool failed = false;

  size_t num_inputs() const { return inputs.empty() ? 1 : inputs.size(); }
  std::vector<std::string> param_names() const;
};

using BlockDefinitions = std::map<std::string, BlockDefinition, std::less<>>;

// The section `blocks`, taken out of `root`. E111 unknown keys, E112 what has the wrong form, E113
// names that cannot be used, E121 a block that leads back to itself.
BlockDefinitions take_blocks(YamlNode& root, Diagnostics& diagnostics);

}  // namespace meshtrain
