#include "backend/view.h"

#include <algorithm>

namespace meshtrain {

void coalesce(StridedLoop& loop) {
  StridedLoop out;
  out.strides.resize(loop.strides.size());
  for (size_t d = 0; d < loop.rank(); ++d) {
    const int64_t size = loop.sizes[d];
    if (size == 1)
      continue;
    bool joins = !out.sizes.empty();
    for (size_t a = 0; a < loop.strides.size() && joins; ++a) {
      joins = out.strides[a].back() == loop.strides[a][d] * size;
    }
    if (joins) {
      out.sizes.back() *= size;
    } else {
      out.sizes.push_back(size);
    }
    for (size_t a = 0; a < loop.strides.size(); ++a) {
      if (joins) {
        out.strides[a].back() = loop.strides[a][d];
      } else {
        out.strides[a].push_back(loop.strides[a][d]);
      }
    }
  }
  if (out.sizes.empty()) {
    out.sizes.push_back(1);
    for (std::vector<int64_t>& strides : out.strides)
      strides.push_back(0);
  }
  loop = std::move(out);
}

int64_t offset_of(const Shape& sizes, const std::vector<int64_t>& strides, size_t rank,
                  int64_t index) {
  int64_t offset = 0;
  for (size_t d = rank; d-- > 0;) {
    offset += index % sizes[d] * strides[d];
    index /= sizes[d];
  }
  return offset;
}

View contiguous_view(std::byte* data, DType dtype, Shape shape) {
  View view{data, dtype, std::move(shape), {}};
  view.strides = row_major_strides(view.shape);
  return view;
}

bool is_contiguous(const View& view) {
  int64_t expected = 1;
  for (size_t d = view.rank(); d-- > 0;) {
    if (view.shape[d] != 1 && view.strides[d] != expected)
      return false;
    expected *= view.shape[d];
  }
  return true;
}

Access whole_access(const View& view, bool is_write) {
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < view.rank(); ++d) {
    if (view.shape[d] == 0)
      return {view.data, view.data, is_write};
    const int64_t reach = (view.shape[d] - 1) * view.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  return {view.data + low * view.item_size(), view.data + (high + 1) * view.item_size(), is_write};
}

}  // namespace meshtrain
