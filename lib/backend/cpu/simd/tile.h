// Tiles of matrix products: panels of A and B are packed so that the inner kernel reads them in
// order (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). For
// sources that are compiled with -ffp-contract=fast.
#pragma once

#include "backend/cpu/simd/math.h"

namespace meshtrain::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 12;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6;
#else
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 6;
#endif
constexpr int kTileVectors = 2;
constexpr int kFewRows = kTileRows * 2 / 3;  // of a last tile, which then takes less time

template <class T>
struct Vectors {
  typedef T type __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
};
template <class T>
using Vec = typename Vectors<T>::type;
template <class T>
constexpr int kTileColumns = kTileVectors* kVectorBytes / static_cast<int>(sizeof(T));

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

// Four rows of four elements, `row` apart, as columns, `column` apart.
inline void transpose_four(const float* from, int64_t row, float* to, int64_t column) {
  const Four r0 = *reinterpret_cast<const Four*>(from);
  const Four r1 = *reinterpret_cast<const Four*>(from + row);
  const Four r2 = *reinterpret_cast<const Four*>(from + 2 * row);
  const Four r3 = *reinterpret_cast<const Four*>(from + 3 * row);
  const Four a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const Four b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const Four d = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const Four e = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  *reinterpret_cast<Four*>(to) = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + column) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  *reinterpret_cast<Four*>(to + 2 * column) = __builtin_shufflevector(d, e, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + 3 * column) = __builtin_shufflevector(d, e, 2, 3, 6, 7);
}

// The first columns of kTileRows whole rows of A, as pack_a packs them; returns how many.
inline int64_t pack_whole_rows(const float* a, int64_t row, int64_t k, float* out) {
  if constexpr (kTileRows % 4 != 0)
    return 0;
  const int64_t packed = k / 4 * 4;
  for (int64_t p = 0; p < packed; p += 4) {
    for (int r = 0; r < kTileRows; r += 4)
      transpose_four(a + r * row + p, row, out + p * kTileRows + r, kTileRows);
  }
  return packed;
}
inline int64_t pack_whole_rows(const double*, int64_t, int64_t, double*) {
  return 0;
}

// Rows of A as panels of kTileRows: for each k the kTileRows elements side by side, zeros below m.
template <class T>
void pack_a(const T* a, int64_t row, int64_t column, int64_t m, int64_t k, T* out) {
  for (int64_t i = 0; i < m; i += kTileRows) {
    const int rows = m - i < kTileRows ? static_cast<int>(m - i) : kTileRows;
    const T* panel = a + i * row;
    if (rows == kTileRows) {
      const int64_t packed = column == 1 ? pack_whole_rows(panel, row, k, out) : 0;
      for (int64_t p = packed; p < k; ++p) {
        for (int r = 0; r < kTileRows; ++r)
          out[p * kTileRows + r] = panel[r * row + p * column];
      }
    } else {
      for (int64_t p = 0; p < k; ++p) {
        for (int r = 0; r < kTileRows; ++r) {
          out[p * kTileRows + r] = r < rows ? panel[r * row + p * column] : T{0};
        }
      }
    }
    out += k * kTileRows;
  }
}

// Columns of B as panels of kTileColumns, zeros beyond n.
template <class T>
void pack_b(const T* b, int64_t row, int64_t column, int64_t k, int64_t n, T* out) {
  constexpr int C = kTileColumns<T>;
  for (int64_t j = 0; j < n; j += C) {
    const int columns = n - j < C ? static_cast<int>(n - j) : C;
    const T* panel = b + j * column;
    for (int64_t p = 0; p < k; ++p) {
      const T* source = panel + p * row;
      if (columns == C && column == 1) {
        for (int c = 0; c < C; ++c)
          out[p * C + c] = source[c];
      } else {
        for (int c = 0; c < C; ++c)
          out[p * C + c] = c < columns ? source[c * column] : T{0};
      }
    }
    out += k * C;
  }
}

// The first kRows rows of a tile of C, kTileRows x kTileColumns, over k terms of packed panels.
template <int kRows = kTileRows, class T>
inline void tile(const T* __restrict__ a, const T* __restrict__ b, int64_t k,
                 Vec<T> (&sum)[kTileRows][kTileVectors]) {
  constexpr int L = kVectorBytes / static_cast<int>(sizeof(T));
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTileVectors; ++v)
      sum[r][v] = Vec<T>{};
  }
  for (int64_t p = 0; p < k; ++p) {
    Vec<T> right[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) {
      right[v] = *reinterpret_cast<const Vec<T>*>(b + p * kTileColumns<T> + v * L);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const T left = a[p * kTileRows + r];
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v)
        sum[r][v] += left * right[v];
    }
  }
}

template <class T>
void store_tile(const Vec<T> (&sum)[kTileRows][kTileVectors], T* c, int64_t c_row, int64_t rows,
                int64_t columns, bool accumulate) {
  constexpr int L = kVectorBytes / static_cast<int>(sizeof(T));
  if (columns == kTileColumns<T>) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int v = 0; v < kTileVectors; ++v) {
        Vec<T>* place = reinterpret_cast<Vec<T>*>(c + r * c_row + v * L);
        *place = accumulate ? *place + sum[r][v] : sum[r][v];
      }
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const T* line = reinterpret_cast<const T*>(&sum[r][0]);
    for (int64_t j = 0; j < columns; ++j) {
      c[r * c_row + j] = accumulate ? c[r * c_row + j] + line[j] : line[j];
    }
  }
}

// C (m, n) = A (m, k) B (k, n) (+ C), of pack_a's and pack_b's results.
template <class T>
void multiply_block(const T* packed_a, const T* packed_b, T* c, int64_t c_row, int64_t m, int64_t n,
                    int64_t k, bool accumulate) {
  constexpr int C = kTileColumns<T>;
  for (int64_t j = 0; j < n; j += C) {
    for (int64_t i = 0; i < m; i += kTileRows) {
      Vec<T> sum[kTileRows][kTileVectors];
      if (m - i <= kFewRows)
        tile<kFewRows>(packed_a + i * k, packed_b + j * k, k, sum);
      else
        tile(packed_a + i * k, packed_b + j * k, k, sum);
      store_tile<T>(sum, c + i * c_row + j, c_row, m - i < kTileRows ? m - i : kTileRows,
                    n - j < C ? n - j : C, accumulate);
    }
  }
}

}  // namespace
}  // namespace meshtrain::cpu
