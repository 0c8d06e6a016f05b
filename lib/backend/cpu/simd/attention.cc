// Attention of float32 and float64.
#include "backend/cpu/simd/attention_blocks.h"

namespace meshtrain::cpu {
namespace {

// As pack_b(x, 1, row, columns, rows, out): B is the transpose of x (rows, columns).
inline void pack_across(const float* x, int64_t row, int64_t rows, int64_t columns, float* out) {
  constexpr int C = kTileColumns<float>;
  for (int64_t j = 0; j < rows; j += C, out += columns * C) {
    const int64_t whole = smaller_of(rows - j, C) / 4 * 4;
    int64_t p = 0;
    for (; p + 4 <= columns; p += 4) {
      for (int64_t c = 0; c < whole; c += 4) {
        transpose_four(x + (j + c) * row + p, row, out + p * C + c, C);
      }
    }
    for (int64_t q = 0; q < columns; ++q) {  // what is left of both
      for (int64_t c = q < p ? whole : 0; c < C; ++c)
        out[q * C + c] = j + c < rows ? x[(j + c) * row + q] : 0.0f;
    }
  }
}
inline void pack_across(const double* x, int64_t row, int64_t rows, int64_t columns, double* out) {
  pack_b(x, 1, row, columns, rows, out);
}

// Operands as they are.
template <class T>
struct Whole {
  using Sum = T;
  using Packed = T;
  static constexpr int64_t kRow = kKeyBlock, kLeft = 0;
  static constexpr int64_t steps(int64_t k) { return k; }
  static Vec<T> add_product(Vec<T> sum, T left, Vec<T> right) { return sum + left * right; }
  static void pack_rows(const T* x, int64_t row, int64_t m, int64_t k, T* out) {
    pack_a(x, row, 1, m, k, out);
  }
  static void pack_columns(const T* x, int64_t row, int64_t k, int64_t n, T* out) {
    pack_b(x, row, 1, k, n, out);
  }
  static void pack_across(const T* x, int64_t row, int64_t rows, int64_t columns, T* out) {
    cpu::pack_across(x, row, rows, columns, out);
  }
  static const T* rows_of(const T* scores, int64_t, int64_t, T*) { return scores; }
  static const T* columns_of(const T* scores, int64_t, int64_t, T*) { return scores; }
};

}  // namespace

void MESHTRAIN_FILL(fill_attention)(KernelTable& table) {
  fill_form<Whole<float>>(table, kTypeF32);
  fill_form<Whole<double>>(table, kTypeF64);
}

}  // namespace meshtrain::cpu
