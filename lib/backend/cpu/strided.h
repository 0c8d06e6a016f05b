// Loops over several arrays of one shape with different strides, in as few dimensions as possible.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/shape.h"

namespace meshtrain::cpu {

// `sizes` and, for each array, its strides in elements.
struct StridedLoop {
  Shape sizes;
  std::vector<std::vector<int64_t>> strides;  // [array][dimension]

  size_t rank() const { return sizes.size(); }
};

// Drops dimensions of size 1 and joins neighbours that are one dimension for every array. Keeps at
// least one dimension.
void coalesce(StridedLoop& loop);

// Offset of the element with this flat (row-major) index over the first `rank` dimensions.
int64_t offset_of(const Shape& sizes, const std::vector<int64_t>& strides, size_t rank,
                  int64_t index);

}  // namespace meshtrain::cpu
