// Rows of a strided loop, one after the other, and copies of many short ones: broadcasts, slices
// and the channels of images are made of these.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/view.h"
#include "base/error.h"

namespace meshtrain::cpu {

constexpr size_t kMaxRank = 32;

// Calls run(offsets, n) for n rows at a time, which lie along dimension outer - 1: `count` rows of
// the dimensions before `outer`, from the row `first` on. offsets: of their first row, by strides.
template <size_t kViews, class F>
void walk_rows(const Shape& sizes, const std::array<const int64_t*, kViews>& strides, size_t outer,
               int64_t first, int64_t count, F&& run) {
  std::array<int64_t, kViews> at{};
  if (count <= 0)
    return;  // a dimension may be empty
  if (outer == 0) {
    run(at, int64_t{1});
    return;
  }
  MESHTRAIN_CHECK(outer <= kMaxRank, "{} dimensions", outer);
  std::array<int64_t, kMaxRank> digits;
  const auto advance = [&](size_t d, int64_t steps) {
    for (size_t view = 0; view < kViews; ++view)
      at[view] += steps * strides[view][d];
  };
  for (size_t d = outer; d-- > 0;) {
    digits[d] = first % sizes[d];
    first /= sizes[d];
    advance(d, digits[d]);
  }
  const size_t inner = outer - 1;
  while (count > 0) {
    const int64_t n = std::min(count, sizes[inner] - digits[inner]);
    run(at, n);
    count -= n;
    advance(inner, -digits[inner]);
    digits[inner] = 0;
    for (size_t d = inner; d-- > 0;) {
      advance(d, 1);
      if (++digits[d] < sizes[d])
        break;
      advance(d, -sizes[d]);
      digits[d] = 0;
    }
  }
}

// Calls function(T{}) with an unsigned type of this size.
template <class F>
void dispatch_size(int64_t item_size, F&& function) {
  if (item_size == 1) {
    function(uint8_t{});
  } else if (item_size == 2) {
    function(uint16_t{});
  } else if (item_size == 4) {
    function(uint32_t{});
  } else {
    function(uint64_t{});
  }
}

// `rows` rows of `size` elements; distances in elements.
struct Rows {
  int64_t rows = 1, size = 1;
  int64_t from_row = 0, to_row = 0;  // from row to row
  int64_t from = 1, to = 1;          // from element to element
};

void copy_rows(const std::byte* from, std::byte* to, int64_t item_size, const Rows& rows);

}  // namespace meshtrain::cpu
