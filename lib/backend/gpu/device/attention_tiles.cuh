// Attention and its gradients, tile by tile on tensor cores (formulas: ir/ops/attention.cc; the
// algorithm: Dao, FlashAttention-2, 2023). For elements of at most 32 bits.
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
constexpr long long kFewKeys = 64;

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
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = at.group + e / 2 * 8, column = 8 * m + 2 * at.place + e % 2;
      if (row < valid && column < size)
        store(to + row * step + column, sums[m][e] * factor[e / 2]);
    }
  }
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

// Arguments: q, k, v, o, lse, those of Pairs. `shared`: a tile of k and one of v.
template <Attending A, class T>
MT_FN void attention_tiles(const unsigned long long* arg, unsigned block, unsigned char* shared,
                           AttentionScales<float> scales) {
  constexpr int tile = A.tile;
  constexpr bool kHasFewKeys = A.keys <= kFewKeys;
  constexpr int k_words = kRowWords<T, A.head_size>, v_words = kRowWords<T, A.value_size>;
  using P = Pairs<A, T, 5>;
  const P pairs{arg, scales};
  const TilePairs<A, P> in{pairs, (long long)arg[7]};
  const WarpLane at;
  const OwnTile own(block, A.queries, A.heads, at);
  const long long b = own.batch, h = own.head, group = h / A.readers();
  const long long query = own.first + at.warp * kWarpRows;
  unsigned* const keys = (unsigned*)shared;
  unsigned* const values = keys + tile * k_words;
  const long long row = (b * A.queries + query) * A.heads + h;
  unsigned q[kWords<T, A.head_size> / 8][4];
  read_rows<A.head_size, A.vector>(q, (const T*)arg[0] + row * A.head_size, A.heads * A.head_size,
                                   own.left, at);
  float sums[kWords<T, A.value_size> * kOfWord<T> / 8][4] = {};
  RunningRows rows{{minus_infinity<float>(), minus_infinity<float>()}, {0.0f, 0.0f}};
  for (long long key = 0; key < A.keys; key += tile) {
    if (in.none(own.first, kBlockRows, key, tile))
      continue;
    __syncthreads();
    const long long first = (b * A.keys + key) * A.groups + group;
    copy_rows<A.head_size, A.vector, tile>(keys, (const T*)arg[1] + first * A.head_size,
                                           A.groups * A.head_size, A.keys - key);
    copy_rows<A.value_size, A.vector, tile>(values, (const T*)arg[2] + first * A.value_size,
                                            A.groups * A.value_size, A.keys - key);
    __syncthreads();
    if (own.left <= 0 || in.none(query, kWarpRows, key, tile))
      continue;
    float scores[tile / 8][4] = {};
    multiply_rows<T>(scores, q, keys, k_words, at);
    const bool some = in.some(query, kWarpRows, key, tile);
#pragma unroll
    for (int n = 0; n < tile / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const long long i = query + at.group + e / 2 * 8, j = key + 8 * n + 2 * at.place + e % 2;
        scores[n][e] =
            some && !in.allows(b, h, i, j) ? minus_infinity<float>() : scores[n][e] * scales.scale;
      }
    }
    rows.add(scores, sums);
    if constexpr (A.has_dropout) {
#pragma unroll
      for (int n = 0; n < tile / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[n][e] *=
              pairs.factor(b, h, query + at.group + e / 2 * 8, key + 8 * n + 2 * at.place + e % 2);
      }
    }
    multiply_tile<T, kHasFewKeys>(sums, scores, values, v_words, at);
  }
  if (own.left <= 0)
    return;
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = joined(rows.total[r], [](float x, float y) { return x + y; });
    factor[r] = total == 0.0f ? 0.0f : 1.0f / total;
    const int own_row = at.group + 8 * r;
    if (at.place == 0 && own_row < own.left)
      ((float*)arg[4])[(b * A.heads + h) * A.queries + query + own_row] =
          rows.largest[r] + log(total);
  }
  write_rows<A.value_size>((T*)arg[3] + row * A.value_size, A.heads * A.value_size, own.left, sums,
                           factor, at);
}

// sum(o do) - the cotangent of lse, of two rows of a lane's group. Arguments as those of
// attention_query_grad_tiles().
template <Attending A, class T, class P>
MT_FN void own_sums(float (&out)[2], const unsigned long long* arg, long long row, long long at_lse,
                    long long left, const P& pairs, const WarpLane& at) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own_row = at.group + 8 * r;
    float sum = 0;
    if (own_row < left) {
      const long long from = (row + own_row * A.heads) * A.value_size;
      for (int e = at.place; e < A.value_size; e += 4)
        sum += load((const T*)arg[3] + from + e) * load((const T*)arg[5] + from + e);
    }
    sum = joined(sum, [](float x, float y) { return x + y; });
    if constexpr (A.has_lse_cotangent) {
      if (own_row < left)
        sum -= pairs.template array<float>(P::lse_cotangent)[at_lse + own_row];
    }
    out[r] = sum;
    if (at.place == 0 && own_row < left)
      ((float*)arg[7])[at_lse + own_row] = sum;
  }
}

// dq, and sum(o do) - the cotangent of lse, which attention_key_grad_tiles() reads. Arguments: q,
// k, v, o, lse, the cotangent of o, dq, these sums, those of Pairs. `shared`: as attention_tiles().
template <Attending A, class T>
MT_FN void attention_query_grad_tiles(const unsigned long long* arg, unsigned block,
                                      unsigned char* shared, AttentionScales<float> scales) {
  constexpr int tile = A.tile;
  constexpr bool kHasFewKeys = A.keys <= kFewKeys;
  constexpr int k_words = kRowWords<T, A.head_size>, v_words = kRowWords<T, A.value_size>;
  using P = Pairs<A, T, 8>;
  const P pairs{arg, scales};
  const TilePairs<A, P> in{pairs, (long long)arg[10]};
  const WarpLane at;
  const OwnTile own(block, A.queries, A.heads, at);
  const long long b = own.batch, h = own.head, group = h / A.readers();
  const long long query = own.first + at.warp * kWarpRows;
  unsigned* const keys = (unsigned*)shared;
  unsigned* const values = keys + tile * k_words;
  const long long row = (b * A.queries + query) * A.heads + h;
  const long long at_lse = (b * A.heads + h) * A.queries + query;
  unsigned q[kWords<T, A.head_size> / 8][4], g[kWords<T, A.value_size> / 8][4];
  read_rows<A.head_size, A.vector>(q, (const T*)arg[0] + row * A.head_size, A.heads * A.head_size,
                                   own.left, at);
  read_rows<A.value_size, A.vector>(g, (const T*)arg[5] + row * A.value_size,
                                    A.heads * A.value_size, own.left, at);
  float delta[2], lse[2];
  own_sums<A, T>(delta, arg, row, at_lse, own.left, pairs, at);
#pragma unroll
  for (int r = 0; r < 2; ++r)
    lse[r] = at.group + 8 * r < own.left ? ((const float*)arg[4])[at_lse + at.group + 8 * r]
                                         : minus_infinity<float>();
  float sums[kWords<T, A.head_size> * kOfWord<T> / 8][4] = {};
  for (long long key = 0; key < A.keys; key += tile) {
    if (in.none(own.first, kBlockRows, key, tile))
      continue;
    __syncthreads();
    const long long first = (b * A.keys + key) * A.groups + group;
    copy_rows<A.head_size, A.vector, tile>(keys, (const T*)arg[1] + first * A.head_size,
                                           A.groups * A.head_size, A.keys - key);
    copy_rows<A.value_size, A.vector, tile>(values, (const T*)arg[2] + first * A.value_size,
                                            A.groups * A.value_size, A.keys - key);
    __syncthreads();
    if (own.left <= 0 || in.none(query, kWarpRows, key, tile))
      continue;
    float scores[tile / 8][4] = {}, products[tile / 8][4] = {};
    multiply_rows<T>(scores, q, keys, k_words, at);
    multiply_rows<T>(products, g, values, v_words, at);
    const bool some = in.some(query, kWarpRows, key, tile);
#pragma unroll
    for (int n = 0; n < tile / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = e / 2;
        const long long i = query + at.group + 8 * r, j = key + 8 * n + 2 * at.place + e % 2;
        const bool is_out = lse[r] == minus_infinity<float>() || (some && !in.allows(b, h, i, j));
        const float p = exp_of(scores[n][e] * scales.scale - lse[r]);
        const float ds = p * (products[n][e] * pairs.factor(b, h, i, j) - delta[r]) * scales.scale;
        scores[n][e] = is_out ? 0.0f : ds;
      }
    }
    multiply_tile<T, kHasFewKeys>(sums, scores, keys, k_words, at);
  }
  const float one[2] = {1.0f, 1.0f};
  write_rows<A.head_size>((T*)arg[6] + row * A.head_size, A.heads * A.head_size, own.left, sums,
                          one, at);
}

// dk and dv, over the query heads that read a key head. Arguments: q, k, v, lse, the cotangent of
// o, the sums of attention_query_grad_tiles(), dk, dv, those of Pairs. `shared`: a tile of q, one
// of the cotangent, and their lse and sums.
template <Attending A, class T>
MT_FN void attention_key_grad_tiles(const unsigned long long* arg, unsigned block,
                                    unsigned char* shared, AttentionScales<float> scales) {
  constexpr int tile = A.tile;
  constexpr bool kHasFewKeys = A.keys <= kFewKeys;
  constexpr int q_words = kRowWords<T, A.head_size>, g_words = kRowWords<T, A.value_size>;
  using P = Pairs<A, T, 8>;
  const P pairs{arg, scales};
  const TilePairs<A, P> in{pairs, (long long)arg[10]};
  const WarpLane at;
  const OwnTile own(block, A.keys, A.groups, at);
  const long long b = own.batch, group = own.head, key = own.first + at.warp * kWarpRows;
  unsigned* const queries = (unsigned*)shared;
  unsigned* const cotangents = queries + tile * q_words;
  float* const lse = (float*)(cotangents + tile * g_words);
  float* const delta = lse + tile;
  const long long row = (b * A.keys + key) * A.groups + group;
  unsigned k[kWords<T, A.head_size> / 8][4], v[kWords<T, A.value_size> / 8][4];
  read_rows<A.head_size, A.vector>(k, (const T*)arg[1] + row * A.head_size, A.groups * A.head_size,
                                   own.left, at);
  read_rows<A.value_size, A.vector>(v, (const T*)arg[2] + row * A.value_size,
                                    A.groups * A.value_size, own.left, at);
  float key_sums[kWords<T, A.head_size> * kOfWord<T> / 8][4] = {};
  float value_sums[kWords<T, A.value_size> * kOfWord<T> / 8][4] = {};
  for (long long h = group * A.readers(); h < (group + 1) * A.readers(); ++h) {
    for (long long query = 0; query < A.queries; query += tile) {
      if (in.none(query, tile, own.first, kBlockRows))
        continue;
      __syncthreads();
      const long long first = (b * A.queries + query) * A.heads + h, left = A.queries - query;
      copy_rows<A.head_size, A.vector, tile>(queries, (const T*)arg[0] + first * A.head_size,
                                             A.heads * A.head_size, left);
      copy_rows<A.value_size, A.vector, tile>(cotangents, (const T*)arg[4] + first * A.value_size,
                                              A.heads * A.value_size, left);
      const long long at_lse = (b * A.heads + h) * A.queries + query;
      for (int i = (int)threadIdx.x; i < tile; i += (int)kThreads) {
        lse[i] = i < left ? ((const float*)arg[3])[at_lse + i] : minus_infinity<float>();
        delta[i] = i < left ? ((const float*)arg[5])[at_lse + i] : 0.0f;
      }
      __syncthreads();
      if (own.left <= 0 || in.none(query, tile, key, kWarpRows))
        continue;
      float scores[tile / 8][4] = {}, products[tile / 8][4] = {};
      multiply_rows<T>(scores, k, queries, q_words, at);
      multiply_rows<T>(products, v, cotangents, g_words, at);
      const bool some = in.some(query, tile, key, kWarpRows);
#pragma unroll
      for (int n = 0; n < tile / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int c = 8 * n + 2 * at.place + e % 2;
          const long long i = query + c, j = key + at.group + e / 2 * 8;
          const bool is_out = lse[c] == minus_infinity<float>() || (some && !in.allows(b, h, i, j));
          const float p = is_out ? 0.0f : exp_of(scores[n][e] * scales.scale - lse[c]);
          const float weight = pairs.factor(b, h, i, j);
          const float ds = p * (products[n][e] * weight - delta[c]) * scales.scale;
          scores[n][e] = p * weight;
          products[n][e] = is_out ? 0.0f : ds;
        }
      }
      multiply_tile<T, kHasFewKeys>(value_sums, scores, cotangents, g_words, at);
      multiply_tile<T, kHasFewKeys>(key_sums, products, queries, q_words, at);
    }
  }
  const float one[2] = {1.0f, 1.0f};
  write_rows<A.head_size>((T*)arg[6] + row * A.head_size, A.groups * A.head_size, own.left,
                          key_sums, one, at);
  write_rows<A.value_size>((T*)arg[7] + row * A.value_size, A.groups * A.value_size, own.left,
                           value_sums, one, at);
}

}  // namespace
}  // namespace mt
