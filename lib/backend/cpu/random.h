// Random bits and dropout: functions of the seed, the stream, the step and global indices.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// A piece of a random tensor: element (i, j, ...) has the global index
// first + i * index_strides[0] + j * index_strides[1] + ...; a stride of 0 shares numbers.
struct RandomPiece {
  Shape shape;
  uint64_t first = 0;
  std::vector<int64_t> index_strides;
  uint64_t seed = 0;
  uint32_t stream = 0;
  const std::byte* step = nullptr;  // int64, read at every run
};

// out: contiguous uint32.
KernelPtr make_random_bits(const RandomPiece& piece, std::byte* out);
// out = x scaled by 1 / (1 - rate), or 0 with probability `rate`; both contiguous, out may be x.
KernelPtr make_dropout(const RandomPiece& piece, DType dtype, double rate, const std::byte* x,
                       std::byte* out);

}  // namespace meshtrain::cpu
