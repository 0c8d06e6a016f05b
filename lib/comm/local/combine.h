// Collectives between the devices of one process: each part of a result is copied from the piece
// that holds it, or combined from the pieces that hold its terms, in device order.
#pragma once

#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cpu/kernel_table.h"

namespace meshtrain::local {

// A box of a result: to[i...] = sources[0][i...] + sources[1][i...] + ... . All sources have the
// same strides; the last dimension of either side is adjacent.
struct Region {
  std::byte* to = nullptr;
  std::vector<const std::byte*> sources;
  Shape shape;
  std::vector<int64_t> to_strides, from_strides;  // in elements
};

// All regions of one or more results, as one kernel; regions must not overlap. The list must not be
// empty.
cpu::KernelPtr make_combine(cpu::Reduction reduction, DType dtype, std::vector<Region> regions);

}  // namespace meshtrain::local
