// Partial-sum fusion: a product or sum whose shards are only the terms of one collective adds up
// the terms of all local shards itself. A gradient over eight virtual devices then costs as much
// as over one.
#pragma once

#include "ir/program.h"

namespace meshtrain {

// Returns for each buffer the partial axes whose terms the writing step adds up; 0 for most
// buffers. The shards at position 0 along these axes hold the sum, the other shards hold nothing.
std::vector<AxisMask> find_fused_sums(const Program& program);

}  // namespace meshtrain
