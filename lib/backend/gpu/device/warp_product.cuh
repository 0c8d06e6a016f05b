// Products of small matrices by a warp, on tensor cores: c (16 x 8) += a (16 x k) b (k x 8).
//
// The k of a product are eight words of 32 bits: 16 elements of 16 bits, or eight floats. What lane
// l has, with group = l / 4 and place = l % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   a  words place and place + 4 of row group (a[0], a[2]) and of row group + 8 (a[1], a[3])
//   b  words place and place + 4 of column group
//   c  columns 2 place and 2 place + 1 of row group (c[0], c[1]) and of row group + 8 (c[2], c[3])
// On the emulated GPU, and below compute capability 8.0, lanes ask each other for the words.
#pragma once

#include "backend/gpu/device/elementwise.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MT_HAS_WARP_PRODUCTS
#endif

namespace mt {
namespace {

struct WarpLane {
  unsigned warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
  int group = (int)(lane / 4u), place = (int)(lane % 4u);
};

template <class T>
constexpr int kOfWord = 4 / sizeof(T);  // elements
// Words of a row, with zeros up to a whole number of products.
template <class T, long long size>
constexpr int kWords = (int)((size + 8 * kOfWord<T> - 1) / (8 * kOfWord<T>)*8);
// From one row to the next in shared memory: lanes that read a word each of eight rows meet in no
// bank, and rows begin at multiples of 16 bytes.
template <class T, long long size>
constexpr int kRowWords = kWords<T, size> + 4;

// --- words -------------------------------------------------------------------------------------

MT_FN unsigned word_of(float x, float, float) {
  return bits_of(x);
}
MT_FN unsigned word_of(bf16, float x, float y) {
#ifdef MT_HAS_WARP_PRODUCTS
  unsigned out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(y), "f"(x));
  return out;
#else
  return bf16_bits(x) | (unsigned)bf16_bits(y) << 16;
#endif
}
MT_FN unsigned word_of(f16, float x, float y) {
  return f16_bits(x) | (unsigned)f16_bits(y) << 16;
}

// Word w of a row of `size` elements; zeros beyond its end.
template <long long size>
MT_FN unsigned word_at(const float* row, int w) {
  return w < size ? bits_of(row[w]) : 0u;
}
template <long long size, class T>
MT_FN unsigned word_at(const T* row, int w) {
  const unsigned low = 2 * w < size ? row[2 * w].bits : 0u;
  return low | (2 * w + 1 < size ? (unsigned)row[2 * w + 1].bits << 16 : 0u);
}

// --- products ----------------------------------------------------------------------------------

#ifdef MT_HAS_WARP_PRODUCTS
#define MT_WARP_PRODUCT(instruction)                                                          \
  asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
// What a word of a and one of b add to c. Of a float, TF32 has the upper 19 bits.
MT_FN float product_of_words(float, unsigned a, unsigned b) {
  return float_of(a & 0xffffe000u) * float_of(b & 0xffffe000u);
}
template <class T>
MT_FN float product_of_words(T, unsigned a, unsigned b) {
  const float low = get(T{(unsigned short)a}) * get(T{(unsigned short)b});
  return low + get(T{(unsigned short)(a >> 16)}) * get(T{(unsigned short)(b >> 16)});
}
MT_FN unsigned long long both(unsigned low, unsigned high) {
  return low | (unsigned long long)high << 32;
}
template <class T>
MT_FN void emulate_product(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const WarpLane at;
  for (int from = 0; from < 4; ++from) {
    const int row = at.group * 4 + from, column = at.place * 8 + from;
    const unsigned long long words[4] = {
        __shfl_sync(~0u, both(a[0], a[2]), row), __shfl_sync(~0u, both(a[1], a[3]), row),
        __shfl_sync(~0u, both(b[0], b[1]), column), __shfl_sync(~0u, both(b[0], b[1]), column + 4)};
    for (int e = 0; e < 4; ++e) {
      const unsigned long long x = words[e / 2], y = words[2 + e % 2];
      c[e] += product_of_words(T{}, (unsigned)x, (unsigned)y) +
              product_of_words(T{}, (unsigned)(x >> 32), (unsigned)(y >> 32));
    }
  }
}
#endif

MT_FN void add_product(bf16, float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef MT_HAS_WARP_PRODUCTS
  MT_WARP_PRODUCT("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
#else
  emulate_product<bf16>(c, a, b);
#endif
}
MT_FN void add_product(f16, float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef MT_HAS_WARP_PRODUCTS
  MT_WARP_PRODUCT("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
#else
  emulate_product<f16>(c, a, b);
#endif
}
MT_FN void add_tf32_product(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef MT_HAS_WARP_PRODUCTS
  MT_WARP_PRODUCT("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");
#else
  emulate_product<float>(c, a, b);
#endif
}
// The upper bits of each float, and what they leave.
template <int N>
MT_FN void split(const unsigned (&x)[N], unsigned (&high)[N], unsigned (&low)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    high[i] = x[i] & 0xffffe000u;
    low[i] = bits_of(float_of(x[i]) - float_of(high[i]));
  }
}
// Three products in TF32 lose 2^-21 of each factor: float32's own error, nearly.
MT_FN void add_product(float, float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  unsigned high_a[4], low_a[4], high_b[2], low_b[2];
  split(a, high_a, low_a);
  split(b, high_b, low_b);
  add_tf32_product(c, low_a, high_b);
  add_tf32_product(c, high_a, low_b);
  add_tf32_product(c, high_a, high_b);
}

// --- operands ----------------------------------------------------------------------------------

// b, whose columns are rows of a tile in shared memory: `row` and the seven below, from `word` on.
MT_FN void take_rows(unsigned (&b)[2], const unsigned* tile, int row_words, int row, int word,
                     const WarpLane& at) {
  const unsigned* from = tile + (row + at.group) * row_words + word + at.place;
  b[0] = from[0];
  b[1] = from[4];
}

// b, whose rows are rows of a tile: `row` and the next, as many as a product has, and the eight
// columns from `column` on. Floats of a pair of rows are together, as left_of() has them.
MT_FN void take_columns(float, unsigned (&b)[2], const unsigned* tile, int row_words, int row,
                        int column, const WarpLane& at) {
  const unsigned* from = tile + (row + 2 * at.place) * row_words + column + at.group;
  b[0] = from[0];
  b[1] = from[row_words];
}
template <class T>
MT_FN void take_columns(T, unsigned (&b)[2], const unsigned* tile, int row_words, int row,
                        int column, const WarpLane& at) {
#ifdef MT_HAS_WARP_PRODUCTS
  const unsigned* from = tile + (row + (int)(at.lane & 15u)) * row_words + column / 2;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(b[0]), "=r"(b[1])
               : "r"((unsigned)__cvta_generic_to_shared(from))
               : "memory");
#else
  for (int e = 0; e < 2; ++e) {
    const unsigned short* from =
        (const unsigned short*)(tile + (row + 8 * e + 2 * at.place) * row_words) + column +
        at.group;
    b[e] = from[0] | (unsigned)from[2 * row_words] << 16;
  }
#endif
}

// a, of products whose results c are 16 x 8 each: one of them for floats, two for 16 bits.
template <int N>
MT_FN void left_of(float, unsigned (&a)[4], const float (&c)[N][4], int k) {
  a[0] = bits_of(c[k][0]);
  a[1] = bits_of(c[k][2]);
  a[2] = bits_of(c[k][1]);
  a[3] = bits_of(c[k][3]);
}
template <class T, int N>
MT_FN void left_of(T type, unsigned (&a)[4], const float (&c)[N][4], int k) {
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    a[2 * e] = word_of(type, c[2 * k + e][0], c[2 * k + e][1]);
    a[2 * e + 1] = word_of(type, c[2 * k + e][2], c[2 * k + e][3]);
  }
}

// --- rows in memory ----------------------------------------------------------------------------

// Copies `rows` rows of `size` elements to shared memory, `step` elements apart; those from `valid`
// on are zeros. `vector`: rows are whole accesses of 16 bytes.
template <long long size, bool vector, int rows, class T>
MT_FN void copy_rows(unsigned* to, const T* from, long long step, long long valid) {
  constexpr int words = kWords<T, size>, row_words = kRowWords<T, size>;
  if constexpr (vector) {
    constexpr int chunks = words / 4;
#pragma unroll
    for (int i = (int)threadIdx.x; i < rows * chunks; i += (int)kThreads) {
      const int row = i / chunks, chunk = i % chunks;
      Pack<unsigned, 4> x = {};
      if (row < valid && chunk * 4 * kOfWord<T> < size)
        x = *(const Pack<unsigned, 4>*)(from + row * step + chunk * 4 * kOfWord<T>);
      *(Pack<unsigned, 4>*)(to + row * row_words + chunk * 4) = x;
    }
  } else {
    for (int i = (int)threadIdx.x; i < rows * words; i += (int)kThreads) {
      const int row = i / words, w = i % words;
      to[row * row_words + w] = row < valid ? word_at<size>(from + row * step, w) : 0u;
    }
  }
}

// All a of 16 rows of `size` elements.
template <long long size, bool vector, class T, int N>
MT_FN void read_rows(unsigned (&a)[N][4], const T* from, long long step, long long valid,
                     const WarpLane& at) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = at.group + e % 2 * 8, w = k * 8 + at.place + e / 2 * 4;
      a[k][e] = 0;
      if (row < valid && w * kOfWord<T> < size) {
        if constexpr (vector)
          a[k][e] = *(const unsigned*)(from + row * step + w * kOfWord<T>);
        else
          a[k][e] = word_at<size>(from + row * step, w);
      }
    }
  }
}

// The value of `place` in all four lanes of a group.
template <class Join>
MT_FN float joined(float x, const Join& join) {
  x = join(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return join(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

}  // namespace
}  // namespace mt
