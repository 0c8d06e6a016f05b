// Attention, tile by tile on tensor cores (formulas: ir/ops/attention.cc; the algorithm: Dao,
// FlashAttention-2, 2023). For elements of at most 32 bits. Gradients: attention_grad_tiles.cuh.
//
// A warp owns 16 rows of queries (or of keys), a block 128. Tiles of the other side come into
// shared memory one after the other. Nothing of queries x keys is stored, sums are float, and each
// has one order.
#pragma once

#include "backend/gpu/device/attention.cuh"
#include "backend/gpu/device/warp_product.cuh"

namespace mt {
namespace {

constexpr int kWarpRows = 16, kBlockRows = kWarpRows * (int)kThreads / 32;
// What rounding probabilities and their gradients to 16 bits takes evens out over many keys. Over
// so few it is multiplied as well: a vector added to all keys must have no gradient.
template <Attending A>
constexpr bool kHasFewKeys = A.keys <= 64;

MT_FN float exp_of(float x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x * 0x1.715476p+0f));
  return out;
#else
  return exp(x);
#endif
}

// Where a block and a warp work: rows [first, ...) of `size`.
struct OwnTile {
  long long batch, head, first;
  long long left;  // rows from the warp's first on; none: <= 0

  // Late rows first: where attention is causal they take the longest.
  MT_FN OwnTile(unsigned block, long long size, long long heads, const WarpLane& at) {
    const unsigned tiles = (unsigned)((size + kBlockRows - 1) / kBlockRows);
    first = (long long)(tiles - 1 - block % tiles) * kBlockRows;
    head = block / tiles % heads;
    batch = block / tiles / heads;
    left = size - first - (long long)at.warp * kWarpRows;
  }
};

// The pairs of 16 rows of queries and a tile of keys, or the other way around.
template <Attending A, class P>
struct TilePairs {
  const P& pairs;
  long long start;  // of the shard's queries

  // Whether no pair of these queries and keys takes part, as far as their places say.
  MT_FN bool none(long long query, long long queries, long long key, long long keys) const {
    if constexpr (A.has_positions)
      return false;
    const long long first = query + start, last = first + queries - 1;
    if (A.causal && key > last)
      return true;
    return A.window != 0 && (first - (key + keys - 1) >= A.window || key - last >= A.window);
  }
  // Whether each of them has to be asked for.
  MT_FN bool some(long long query, long long queries, long long key, long long keys) const {
    if (A.has_query_mask || A.has_key_mask || A.has_segments || A.has_mask || A.has_positions)
      return true;
    if (query + queries > A.queries || key + keys > A.keys)
      return true;
    const long long first = query + start, last = first + queries - 1;
    if (A.causal && key + keys - 1 > first)
      return true;
    return A.window != 0 && (last - key >= A.window || key + keys - 1 - first >= A.window);
  }
  MT_FN bool allows(long long b, long long h, long long i, long long j) const {
    return i < A.queries && j < A.keys && pairs.allows(b, h, i, j);
  }
};

// Calls f(n, e, row, column) for what a lane has of N results of 16 x 8: c[n][e] is of that row and
// column.
template <int N, class F>
MT_FN void each_place(const WarpLane& at, const F& f) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      f(n, e, at.group + e / 2 * 8, 8 * n + 2 * at.place + e % 2);
  }
}

// c += own (16 x size) times the rows of a tile, transposed.
template <class T, int N, int K>
MT_FN void multiply_rows(float (&c)[N][4], const unsigned (&own)[K][4], const unsigned* tile,
                         int row_words, const WarpLane& at) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      unsigned b[2];
      take_rows(b, tile, row_words, 8 * n, 8 * k, at);
      add_product(T{}, c[n], own[k], b);
    }
  }
}
// sums += c (16 x rows of the tile) times the tile. `keeps_rest`: what rounding to 16 bits takes
// from c is multiplied as well.
template <class T, bool keeps_rest = false, int M, int N>
MT_FN void multiply_tile(float (&sums)[M][4], float (&c)[N][4], const unsigned* tile, int row_words,
                         const WarpLane& at) {
  constexpr int kRows = 8 * kOfWord<T>;  // of a product
  constexpr bool kHasRest = keeps_rest && sizeof(T) == 2;
#pragma unroll
  for (int k = 0; k < 8 * N / kRows; ++k) {
    unsigned a[4], rest[4];
    left_of(T{}, a, c, k);
    if constexpr (kHasRest) {
#pragma unroll
      for (int n = 2 * k; n < 2 * k + 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          c[n][e] -= rounded<T>(c[n][e]);
      }
      left_of(T{}, rest, c, k);
    }
#pragma unroll
    for (int m = 0; m < M; ++m) {
      unsigned b[2];
      take_columns(T{}, b, tile, row_words, k * kRows, 8 * m, at);
      add_product(T{}, sums[m], a, b);
      if constexpr (kHasRest)
        add_product(T{}, sums[m], rest, b);
    }
  }
}
// Stores 16 rows of `size` elements, each times its factor.
template <long long size, class T, int M>
MT_FN void write_rows(T* to, long long step, long long valid, const float (&sums)[M][4],
                      const float (&factor)[2], const WarpLane& at) {
  each_place<M>(at, [&](int m, int e, int row, int column) {
    if (row < valid && column < size)
      store(to + row * step + column, sums[m][e] * factor[e / 2]);
  });
}

// Softmax of rows whose scores come tile by tile.
struct RunningRows {
  float largest[2], total[2];  // of two rows, this lane's part

  template <int N, int M>
  MT_FN void add(float (&scores)[N][4], float (&sums)[M][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = largest[r];
#pragma unroll
      for (int n = 0; n < N; ++n)
        most = fmaxf(most, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      most = joined(most, [](float x, float y) { return fmaxf(x, y); });
      // Of a row without keys all is minus infinity.
      const float base = most == minus_infinity<float>() ? 0.0f : most;
      const float old = exp_of(largest[r] - base);
      largest[r] = most;
      total[r] *= old;
#pragma unroll
      for (int m = 0; m < M; ++m) {
        sums[m][2 * r] *= old;
        sums[m][2 * r + 1] *= old;
      }
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          scores[n][e] = exp_of(scores[n][e] - base);
          total[r] += scores[n][e];
        }
      }
    }
  }
};

// 16 rows of queries of a warp, and the tiles of keys and values that its block goes through.
template <Attending A, class T>
struct QueryRows {
  static constexpr int tile = A.tile;
  static constexpr int key_words = kRowWords<T, A.head_size>;
  static constexpr int value_words = kRowWords<T, A.value_size>;

  WarpLane at;
  OwnTile part;
  long long batch, head, query, row, at_lse;  // the first query's, in q and in lse
  unsigned *keys, *values;                    // in shared memory

  MT_FN QueryRows(unsigned block, unsigned char* shared)
      : part(block, A.queries, A.heads, at),
        batch(part.batch),
        head(part.head),
        query(part.first + at.warp * kWarpRows),
        row((batch * A.queries + query) * A.heads + head),
        at_lse((batch * A.heads + head) * A.queries + query),
        keys((unsigned*)shared),
        values(keys + tile * key_words) {}

  // All a of q, or of what has its rows.
  template <long long size, int N>
  MT_FN void read(unsigned (&a)[N][4], const T* from) const {
    read_rows<size, A.vector>(a, from + row * size, A.heads * size, part.left, at);
  }
  template <long long size, int M>
  MT_FN void write(T* to, const float (&sums)[M][4], const float (&factor)[2]) const {
    write_rows<size>(to + row * size, A.heads * size, part.left, sums, factor, at);
  }

  // Calls use(first key) for each tile of which a pair with these queries takes part.
  template <class P, class Use>
  MT_FN void each_tile(const TilePairs<A, P>& in, const T* k, const T* v, const Use& use) const {
    for (long long key = 0; key < A.keys; key += tile) {
      if (in.none(part.first, kBlockRows, key, tile))
        continue;
      const long long first = (batch * A.keys + key) * A.groups + head / A.readers();
      __syncthreads();
      copy_rows<A.head_size, A.vector, tile>(keys, k + first * A.head_size, A.groups * A.head_size,
                                             A.keys - key);
      copy_rows<A.value_size, A.vector, tile>(values, v + first * A.value_size,
                                              A.groups * A.value_size, A.keys - key);
      __syncthreads();
      if (part.left > 0 && !in.none(query, kWarpRows, key, tile))
        use(key);
    }
  }
};

// Arguments: q, k, v, o, lse, those of Pairs. `shared`: a tile of k and one of v.
template <Attending A, class T>
MT_FN void attention_tiles(const unsigned long long* arg, unsigned block, unsigned char* shared,
                           AttentionScales<float> scales) {
  using P = Pairs<A, T, 5>;
  constexpr int kTiles = A.tile / 8;
  const P pairs{arg, scales};
  const TilePairs<A, P> in{pairs, (long long)arg[7]};
  const QueryRows<A, T> own(block, shared);
  unsigned q[kWords<T, A.head_size> / 8][4];
  own.template read<A.head_size>(q, (const T*)arg[0]);
  float sums[kWords<T, A.value_size> * kOfWord<T> / 8][4] = {};
  RunningRows rows{{minus_infinity<float>(), minus_infinity<float>()}, {0.0f, 0.0f}};
  own.each_tile(in, (const T*)arg[1], (const T*)arg[2], [&](long long key) {
    float scores[kTiles][4] = {};
    multiply_rows<T>(scores, q, own.keys, own.key_words, own.at);
    const bool some = in.some(own.query, kWarpRows, key, A.tile);
    each_place<kTiles>(own.at, [&](int n, int e, int i, int j) {
      const bool is_out = some && !in.allows(own.batch, own.head, own.query + i, key + j);
      scores[n][e] = is_out ? minus_infinity<float>() : scores[n][e] * scales.scale;
    });
    rows.add(scores, sums);
    if constexpr (A.has_dropout) {
      each_place<kTiles>(own.at, [&](int n, int e, int i, int j) {
        scores[n][e] *= pairs.factor(own.batch, own.head, own.query + i, key + j);
      });
    }
    multiply_tile<T, kHasFewKeys<A>>(sums, scores, own.values, own.value_words, own.at);
  });
  if (own.part.left <= 0)
    return;
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = joined(rows.total[r], [](float x, float y) { return x + y; });
    factor[r] = total == 0.0f ? 0.0f : 1.0f / total;
    const int row = own.at.group + 8 * r;
    if (own.at.place == 0 && row < own.part.left)
      ((float*)arg[4])[own.at_lse + row] = rows.largest[r] + log(total);
  }
  own.template write<A.value_size>((T*)arg[3], sums, factor);
}

}  // namespace
}  // namespace mt
