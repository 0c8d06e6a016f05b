// Which device holds which shard of a config's variables, drawn.
#pragma once

#include <string>

#include "engine/setup.h"

namespace meshtrain {

// Draws the shards of `name`: a variable, a pinned output (LAYER/output) or "batch"; all of these
// when it is empty. Throws ConfigError E140 for a name that is none of them.
std::string sharding_drawings(const Setup& setup, const std::string& name, bool color);

}  // namespace meshtrain
