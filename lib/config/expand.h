// Blocks and Repeat become the layers that they stand for: a layer `c1` of a block that is used as
// `stage_0` is the layer `stage_0/c1`, so that its weights are `stage_0/c1/kernel`.
//
//   - Residual: {name: stage_0, filters: 16, inputs: stem}
//   - Repeat: {times: 3, name: "block_{i}", block: Residual, with: {filters: =16 * 2 ** i}}
//   - Repeat: {times: 2, layers: [{Dense: {units: =64 // (i + 1)}}, ReLU]}
//
// A Repeat feeds the outputs of each repetition into the next. `{i}` in names and `i` in
// expressions count from 0. Without `name` it only writes its layers several times: automatic names
// continue.
#pragma once

#include <string>
#include <vector>

#include "config/expression.h"
#include "config/yaml.h"

namespace meshtrain {

struct Expansion {
  std::vector<std::string> block_names;  // as defined, for messages about unknown layers
  // The one output of each use of a block, by the name of the use: "stage_0" -> "stage_0/sum".
  std::vector<std::pair<std::string, std::string>> outputs;
};

// Replaces `model.layers` of `root`, and the names of uses in `model.outputs`. Places of what came
// out of a block know the use. E106: more layers than kMaxExpandedLayers; E111-E113, E121 as for
// layers. `most_times`: as LoadOptions has it.
Expansion expand_blocks(YamlNode& root, Expressions& expressions, Diagnostics& diagnostics,
                        int64_t most_times = 0);

constexpr int kMaxExpandedLayers = 10000;

}  // namespace meshtrain
