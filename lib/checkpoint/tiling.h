// Checks that the shards in a manifest tile their tensor.
#pragma once

#include <string>

#include "checkpoint/format.h"

namespace meshtrain {

// Shards must be inside of the tensor, must not overlap, and must have as many elements as the
// tensor: then they cover it. Throws ConfigError E407 otherwise. `path` is the manifest's, for
// messages.
void check_tiling(const CheckpointTensor& tensor, const std::string& path);

}  // namespace meshtrain
