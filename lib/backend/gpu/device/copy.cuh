// Elements moved as they are: copies between strided views, fills, running numbers.
//
// Copies move words of 1 to 16 bytes, as wide as addresses and rows allow. Where one side is
// adjacent in one dimension and the other in another, tiles of the two go through shared memory, so
// that both sides are accessed along their rows.
#pragma once

#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

constexpr unsigned kSpread = 4;  // words of a thread, kThreads apart

// Adjacent on both sides. Arguments: from, to, words, bytes behind the last word, the step of
// threads.
template <class Word>
MT_FN void copy_straight(const unsigned long long* arg, unsigned block) {
  const Word* from = (const Word*)arg[0];
  Word* to = (Word*)arg[1];
  const unsigned long long n = arg[2], tail = arg[3], step = arg[4];
  unsigned long long i = (unsigned long long)block * (kSpread * kThreads) + threadIdx.x;
  for (; i < n; i += step) {
    Word x[kSpread];
#pragma unroll
    for (unsigned e = 0; e < kSpread; ++e) {
      if (i + e * kThreads < n)
        x[e] = from[i + e * kThreads];
    }
#pragma unroll
    for (unsigned e = 0; e < kSpread; ++e) {
      if (i + e * kThreads < n)
        to[i + e * kThreads] = x[e];
    }
  }
  if (block == 0 && threadIdx.x < tail)
    ((unsigned char*)(to + n))[threadIdx.x] = ((const unsigned char*)(from + n))[threadIdx.x];
}

// `total` words in the order of the result. Arguments: from, to.
template <class X, class Word, Loop From, Loop To, long long total, long long step>
MT_FN void copy_strided(const unsigned long long* arg, unsigned block) {
  using U = typename X::U;
  constexpr U n = total;
  const Word* from = (const Word*)arg[0];
  Word* to = (Word*)arg[1];
  for (U i = (U)block * (kSpread * kThreads) + threadIdx.x; i < n; i += (U)step) {
    Word x[kSpread];
#pragma unroll
    for (unsigned e = 0; e < kSpread; ++e) {
      if (i + e * kThreads < n)
        x[e] = from[offset<X, From>(i + e * kThreads)];
    }
#pragma unroll
    for (unsigned e = 0; e < kSpread; ++e) {
      if (i + e * kThreads < n)
        to[offset<X, To>(i + e * kThreads)] = x[e];
    }
  }
}

// Planes of rows x columns: `from` is adjacent along the rows, `to` along the columns.
struct Tiling {
  long long edge;           // of a tile
  long long count, blocks;  // tiles of all planes, and blocks that take them in turn
  long long rows, columns;
  long long from_column, to_row;  // strides
};

// From and To: where tiles begin; their last two dimensions are the tiles of a plane. Arguments:
// from, to. `shared`: edge * (edge + 1) words.
template <Tiling P, class X, class Word, Loop From, Loop To>
MT_FN void copy_tiled(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  using U = typename X::U;
  using I = typename X::I;
  constexpr unsigned edge = P.edge;
  constexpr U rows = P.rows, columns = P.columns;
  constexpr U row_tiles = (rows + edge - 1) / edge, column_tiles = (columns + edge - 1) / edge;
  const Word* from = (const Word*)arg[0];
  Word* to = (Word*)arg[1];
  Word(*tile)[edge + 1] = (Word(*)[edge + 1]) shared;
  const unsigned x = threadIdx.x % edge, y = threadIdx.x / edge;
  for (U i = block; i < (U)P.count; i += (U)P.blocks) {
    const U row = i / column_tiles % row_tiles * edge, column = i % column_tiles * edge;
    const I in = offset<X, From>(i), out = offset<X, To>(i);
    __syncthreads();
    for (unsigned k = y; k < edge; k += kThreads / edge) {
      if (row + x < rows && column + k < columns)
        tile[k][x] = from[in + (I)x + (I)k * (I)P.from_column];
    }
    __syncthreads();
    for (unsigned k = y; k < edge; k += kThreads / edge) {
      if (row + k < rows && column + x < columns)
        to[out + (I)x + (I)k * (I)P.to_row] = tile[x][k];
    }
  }
}

// --- fills -------------------------------------------------------------------------------------

// Eight bytes of T, of which one has these bits, or is what this float32 rounds to.
template <class T>
MT_FN unsigned long long repeated(unsigned long long bits) {
  return sizeof(T) == 1   ? bits * 0x101010101010101ull
         : sizeof(T) == 4 ? bits * 0x100000001ull
                          : bits;
}
template <>
MT_FN unsigned long long repeated<bf16>(unsigned long long bits) {
  return bf16_bits(float_of((unsigned)bits)) * 0x1000100010001ull;
}
template <>
MT_FN unsigned long long repeated<f16>(unsigned long long bits) {
  return f16_bits(float_of((unsigned)bits)) * 0x1000100010001ull;
}

// Arguments: to, words, the halves of the bits, the step of threads.
template <class Word, class T>
MT_FN void fill(const unsigned long long* arg, unsigned block) {
  Word* to = (Word*)arg[0];
  const Word value = (Word)repeated<T>(arg[3] << 32 | arg[2]);
  unsigned long long i = (unsigned long long)block * kThreads + threadIdx.x;
  for (; i < arg[1]; i += arg[4])
    to[i] = value;
}

// start, start + 1, ... along a dimension of `size`, `inner` elements apart. Arguments: to, start.
template <class T, long long total, long long step, long long inner, long long size>
MT_FN void iota(const unsigned long long* arg, unsigned block) {
  T* to = (T*)arg[0];
  unsigned long long i = (unsigned long long)block * kThreads + threadIdx.x;
  for (; i < (unsigned long long)total; i += (unsigned long long)step) {
    const unsigned long long place = i / (unsigned long long)inner % (unsigned long long)size;
    store(to + i, (Compute<T>)(arg[1] + place));
  }
}

}  // namespace
}  // namespace mt
