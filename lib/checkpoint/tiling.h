// Whether the shards that a manifest names make up a tensor.
#pragma once

#include <string>

#include "checkpoint/format.h"

namespace meshtrain {

// Shards must lie in the tensor, not overlap, and have as many elements as it has: then they cover
// it. Throws ConfigError E407 otherwise; `path` is the manifest's, for messages.
void check_tiling(const CheckpointTensor& tensor, const std::string& path);

}  // namespace meshtrain
