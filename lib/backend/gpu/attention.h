// Which attentions cuDNN can compute.
#pragma once

#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

// 16-bit floats: all pairs, or causal ones of a shard that begins at the first query; heads of up
// to 128 elements, a multiple of 8. No dropout, windows or other masks. Tables of fewer than 256
// queries or keys are left to our own kernels.
bool library_takes(const AttentionShape& shape, const AttentionMasks& masks);

}  // namespace meshtrain::gpu
