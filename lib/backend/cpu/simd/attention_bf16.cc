// Attention of bfloat16 on processors with AVX512-BF16: operands of products are pairs of bfloat16
// in 32 bits, sums are float32. Its arrays are float32 with values that bfloat16 holds; scores are
// rounded to bfloat16 before the second product.
#include <immintrin.h>

#include "backend/cpu/simd/attention_blocks.h"

namespace meshtrain::cpu {
namespace {

using Pair = uint32_t;  // the earlier term in the low bits
// Of values that bfloat16 holds.
inline Pair pair_of(float first, float second) {
  return __builtin_bit_cast(uint32_t, first) >> 16 |
         (__builtin_bit_cast(uint32_t, second) & 0xFFFF0000u);
}

constexpr int64_t kWidth = 32;  // pairs of a row that are packed together

// Pairs of `n` floats, and a zero where n is odd.
inline void pair_row(const float* x, int64_t n, Pair* out) {
  int64_t j = 0;
  for (; j + 32 <= n; j += 32) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + j + 16), _mm512_loadu_ps(x + j));
    _mm512_storeu_si512(out + j / 2, (__m512i)both);
  }
  for (; j < n; j += 2)
    out[j / 2] = pair_of(x[j], j + 1 < n ? x[j + 1] : 0.0f);
}

// For each pair of columns of x the pairs of `lines` rows, a multiple of 4, side by side; zeros
// beyond the last row.
inline void pack_lines(const float* x, int64_t row, int64_t rows, int64_t columns, int64_t lines,
                       Pair* out) {
  alignas(64) Pair block[kTileColumns<float>][kWidth];
  for (int64_t i = 0; i < rows; i += lines) {
    for (int64_t from = 0; from < columns; from += 2 * kWidth) {
      const int64_t width = smaller_of(2 * kWidth, columns - from), pairs = (width + 1) / 2;
      for (int64_t r = 0; r < lines; ++r) {
        if (i + r < rows)
          pair_row(x + (i + r) * row + from, width, block[r]);
        else
          __builtin_memset(block[r], 0, sizeof(block[r]));
      }
      Pair* const to = out + from / 2 * lines;
      int64_t p = 0;
      for (; p + 4 <= pairs; p += 4) {
        for (int64_t r = 0; r < lines; r += 4)
          transpose_four(reinterpret_cast<const float*>(&block[r][p]), kWidth,
                         reinterpret_cast<float*>(to + p * lines + r), lines);
      }
      for (; p < pairs; ++p) {
        for (int64_t r = 0; r < lines; ++r)
          to[p * lines + r] = block[r][p];
      }
    }
    out += (columns + 1) / 2 * lines;
  }
}

// 16 floats as bfloat16 in the low halves of 32 bits.
inline __m512i rounded(const float* x) {
  return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x)));
}

struct Pairs {
  using Sum = float;
  using Packed = Pair;
  static constexpr int64_t kRow = kKeyBlock / 2;
  static constexpr int64_t kLeft = kQueryBlock * kRow + 2 * kTileRows;  // read beyond its last row
  static constexpr int64_t steps(int64_t k) { return (k + 1) / 2; }
  static Vec<float> add_product(Vec<float> sum, Pair left, Vec<Pair> right) {
    const __m512i both = _mm512_set1_epi32(static_cast<int>(left));
    return (Vec<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)both, (__m512bh)right);
  }

  static void pack_rows(const float* x, int64_t row, int64_t m, int64_t k, Pair* out) {
    pack_lines(x, row, m, k, kTileRows, out);
  }
  static void pack_across(const float* x, int64_t row, int64_t rows, int64_t columns, Pair* out) {
    pack_lines(x, row, rows, columns, kTileColumns<float>, out);
  }
  static void pack_columns(const float* x, int64_t row, int64_t k, int64_t n, Pair* out) {
    constexpr int64_t C = kTileColumns<float>;
    for (int64_t j = 0; j < n; j += C) {
      for (int64_t p = 0; p < k; p += 2) {
        const float* const first = x + p * row + j;
        const float* const second = p + 1 < k ? first + row : nullptr;
        for (int64_t c = 0; c < C; ++c) {
          out[c] = j + c >= n ? 0 : pair_of(first[c], second == nullptr ? 0.0f : second[c]);
        }
        out += C;
      }
    }
  }
  // The pairs of scores up to n; B may have a row for the one behind an odd n.
  static const Pair* rows_of(const float* scores, int64_t m, int64_t n, Pair* left) {
    for (int64_t r = 0; r < m; ++r) {
      pair_row(scores + r * kKeyBlock, whole_columns<float>(n), left + r * kRow);
      if (n % 2 == 1)
        left[r * kRow + n / 2] &= 0xFFFFu;
    }
    return left;
  }
  static const Pair* columns_of(const float* scores, int64_t m, int64_t n, Pair* left) {
    for (int64_t r = 0; r < m; r += 2) {
      const float* const row = scores + r * kKeyBlock;
      for (int64_t j = 0; j < n; j += 16) {
        __m512i both = rounded(row + j);
        if (r + 1 < m)
          both = _mm512_or_si512(both, _mm512_slli_epi32(rounded(row + kKeyBlock + j), 16));
        _mm512_storeu_si512(left + r / 2 * kKeyBlock + j, both);
      }
    }
    return left;
  }
};

}  // namespace

void MESHTRAIN_FILL(fill_attention)(KernelTable& table) {
  fill_form<Pairs>(table, kTypeBF16);
}

}  // namespace meshtrain::cpu
