// Strided arrays in the memory of a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain {

// Bytes that a kernel accesses, for finding dependencies.
struct Access {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool is_write = false;
};

// A strided array: element (i, j, ...) at data + size * (i * strides[0] + j * strides[1] + ...).
struct View {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<int64_t> strides;  // in elements; 0 repeats, negative runs backwards

  int64_t item_size() const { return static_cast<int64_t>(dtype_size(dtype)); }
  int64_t num_bytes() const { return num_elements(shape) * item_size(); }  // of the elements alone
  size_t rank() const { return shape.size(); }
};

View contiguous_view(std::byte* data, DType dtype, Shape shape);
bool is_contiguous(const View& view);
// Returns the range from the first byte of the view to one past its last.
Access whole_access(const View& view, bool is_write);
inline bool overlaps(const Access& a, const Access& b) {
  return a.begin < b.end && b.begin < a.end;
}

// A view whose dimension i is called labels[i]; no label twice.
struct LabelledView {
  View view;
  std::vector<int> labels;
};

// Loops over several arrays of one shape with different strides, in as few dimensions as possible.
struct StridedLoop {
  Shape sizes;
  std::vector<std::vector<int64_t>> strides;  // [array][dimension], in elements

  size_t rank() const { return sizes.size(); }
};

// Drops dimensions of size 1 and joins neighbours that are one dimension for every array. Keeps at
// least one dimension.
void coalesce(StridedLoop& loop);

// Offset of the element with this flat (row-major) index over the first `rank` dimensions.
int64_t offset_of(const Shape& sizes, const std::vector<int64_t>& strides, size_t rank,
                  int64_t index);

}  // namespace meshtrain
