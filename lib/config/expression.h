// Expressions in values, evaluated after all overrides, so that what depends on a value follows it:
//
//   units: =4 * d_model            arithmetic on `vars`, then on full paths
//   dir: ${env:MESHTRAIN_DATA,./data}
//   "${vars.d_model}"              OmegaConf's spelling of a reference
//
// + - * / // % ** and comparisons as in Python; min, max, round, factorizations(n, dims); x[i].
#pragma once

#include "config/yaml.h"

namespace meshtrain {

// Replaces every such value in `root` by its result. E131: an environment variable that is not set;
// E132: what cannot be evaluated, cycles included.
void evaluate_expressions(YamlNode& root, Diagnostics& diagnostics);

}  // namespace meshtrain
