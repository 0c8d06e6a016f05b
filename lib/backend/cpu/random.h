// Random bits and dropout: functions of the seed, the stream, the step and global indices.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// out: contiguous uint32.
KernelPtr make_random_bits(const RandomPiece& piece, std::byte* out);
// out = x scaled by 1 / (1 - rate), or 0 with probability `rate`; both contiguous, out may be x.
KernelPtr make_dropout(const RandomPiece& piece, DType dtype, double rate, const std::byte* x,
                       std::byte* out);

}  // namespace meshtrain::cpu
