#include "backend/cpu/rows.h"

#include <cstring>

#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kLongRow = 64;  // bytes: from here on memcpy and fills are faster than loops
constexpr int64_t kAnySize = 0, kAnyStride = -1;

// The sizes and strides that are known let the compiler write the loop out.
template <class T, int64_t kSize, int64_t kFrom>
void copy_short(const T* from, T* to, const Rows& rows) {
  const int64_t size = kSize == kAnySize ? rows.size : kSize;
  const int64_t step = kFrom == kAnyStride ? rows.from : kFrom;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const T* in = from + r * rows.from_row;
    T* out = to + r * rows.to_row;
    for (int64_t i = 0; i < size; ++i)
      out[i] = in[i * step];
  }
}

template <class T, int64_t kFrom>
void copy_by_size(const T* from, T* to, const Rows& rows) {
  switch (rows.size) {
    case 1:
      return copy_short<T, 1, kFrom>(from, to, rows);
    case 2:
      return copy_short<T, 2, kFrom>(from, to, rows);
    case 3:
      return copy_short<T, 3, kFrom>(from, to, rows);
    case 4:
      return copy_short<T, 4, kFrom>(from, to, rows);
    case 8:
      return copy_short<T, 8, kFrom>(from, to, rows);
    default:
      return copy_short<T, kAnySize, kFrom>(from, to, rows);
  }
}

template <class T>
void copy_typed(const std::byte* from_bytes, std::byte* to_bytes, const Rows& rows) {
  const T* from = reinterpret_cast<const T*>(from_bytes);
  T* to = reinterpret_cast<T*>(to_bytes);
  if (rows.to != 1) {
    for (int64_t r = 0; r < rows.rows; ++r) {
      for (int64_t i = 0; i < rows.size; ++i)
        to[r * rows.to_row + i * rows.to] = from[r * rows.from_row + i * rows.from];
    }
  } else if (rows.from == 0 && rows.size * static_cast<int64_t>(sizeof(T)) >= kLongRow) {
    for (int64_t r = 0; r < rows.rows; ++r) {
      fill_elements(reinterpret_cast<std::byte*>(to + r * rows.to_row),
                    reinterpret_cast<const std::byte*>(from + r * rows.from_row), sizeof(T),
                    rows.size);
    }
  } else if (rows.from == 0) {
    copy_by_size<T, 0>(from, to, rows);
  } else if (rows.from == 1 && rows.size * static_cast<int64_t>(sizeof(T)) >= kLongRow) {
    for (int64_t r = 0; r < rows.rows; ++r) {
      std::memcpy(to + r * rows.to_row, from + r * rows.from_row,
                  static_cast<size_t>(rows.size) * sizeof(T));
    }
  } else if (rows.from == 1) {
    copy_by_size<T, 1>(from, to, rows);
  } else {
    copy_by_size<T, kAnyStride>(from, to, rows);
  }
}

}  // namespace

void copy_rows(const std::byte* from, std::byte* to, int64_t item_size, const Rows& rows) {
  dispatch_size(item_size, [&]<class T>(T) { copy_typed<T>(from, to, rows); });
}

}  // namespace meshtrain::cpu
