// Gradients of attention, tile by tile as attention_tiles.cuh computes it. Probabilities are
// computed again, once for the gradients of queries and once for those of keys and values.
#pragma once

#include "backend/gpu/device/attention_tiles.cuh"

namespace mt {
namespace {

// sum(o do) - the cotangent of lse, of two rows of a lane's group. Arguments as those of
// attention_query_grad_tiles().
template <Attending A, class T, class P>
MT_FN void own_sums(float (&out)[2], const unsigned long long* arg, const QueryRows<A, T>& own,
                    const P& pairs) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = own.at.group + 8 * r;
    const bool is_row = row < own.part.left;
    float sum = 0;
    if (is_row) {
      const long long from = (own.row + row * A.heads) * A.value_size;
      for (int e = own.at.place; e < A.value_size; e += 4)
        sum += load((const T*)arg[3] + from + e) * load((const T*)arg[5] + from + e);
    }
    sum = joined(sum, [](float x, float y) { return x + y; });
    if constexpr (A.has_lse_cotangent) {
      if (is_row)
        sum -= pairs.template array<float>(P::lse_cotangent)[own.at_lse + row];
    }
    out[r] = sum;
    if (own.at.place == 0 && is_row)
      ((float*)arg[7])[own.at_lse + row] = sum;
  }
}

// dq, and sum(o do) - the cotangent of lse, which attention_key_grad_tiles() reads. Arguments: q,
// k, v, o, lse, the cotangent of o, dq, these sums, those of Pairs. `shared`: as attention_tiles().
template <Attending A, class T>
MT_FN void attention_query_grad_tiles(const unsigned long long* arg, unsigned block,
                                      unsigned char* shared, AttentionScales<float> scales) {
  using P = Pairs<A, T, 8>;
  constexpr int kTiles = A.tile / 8;
  const P pairs{arg, scales};
  const TilePairs<A, P> in{pairs, (long long)arg[10]};
  const QueryRows<A, T> own(block, shared);
  unsigned q[kWords<T, A.head_size> / 8][4], g[kWords<T, A.value_size> / 8][4];
  own.template read<A.head_size>(q, (const T*)arg[0]);
  own.template read<A.value_size>(g, (const T*)arg[5]);
  float delta[2], lse[2];
  own_sums<A, T>(delta, arg, own, pairs);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = own.at.group + 8 * r;
    lse[r] =
        row < own.part.left ? ((const float*)arg[4])[own.at_lse + row] : minus_infinity<float>();
  }
  float sums[kWords<T, A.head_size> * kOfWord<T> / 8][4] = {};
  own.each_tile(in, (const T*)arg[1], (const T*)arg[2], [&](long long key) {
    float scores[kTiles][4] = {}, products[kTiles][4] = {};
    multiply_rows<T>(scores, q, own.keys, own.key_words, own.at);
    multiply_rows<T>(products, g, own.values, own.value_words, own.at);
    const bool some = in.some(own.query, kWarpRows, key, A.tile);
    each_place<kTiles>(own.at, [&](int n, int e, int row, int column) {
      const long long b = own.batch, h = own.head, i = own.query + row, j = key + column;
      const int r = e / 2;
      const bool is_out = lse[r] == minus_infinity<float>() || (some && !in.allows(b, h, i, j));
      const float p = exp_of(scores[n][e] * scales.scale - lse[r]);
      const float ds = p * (products[n][e] * pairs.factor(b, h, i, j) - delta[r]) * scales.scale;
      scores[n][e] = is_out ? 0.0f : ds;
    });
    multiply_tile<T, kHasFewKeys<A>>(sums, scores, own.keys, own.key_words, own.at);
  });
  const float one[2] = {1.0f, 1.0f};
  own.template write<A.head_size>((T*)arg[6], sums, one);
}

// 16 rows of keys of a warp, and the tiles of queries, of cotangents of o, of lse and of its sums
// that its block goes through.
template <Attending A, class T>
struct KeyRows {
  static constexpr int tile = A.tile;
  static constexpr int query_words = kRowWords<T, A.head_size>;
  static constexpr int cotangent_words = kRowWords<T, A.value_size>;

  WarpLane at;
  OwnTile part;
  long long batch, group, key, row;
  unsigned *queries, *cotangents;  // in shared memory
  float *lse, *delta;

  MT_FN KeyRows(unsigned block, unsigned char* shared)
      : part(block, A.keys, A.groups, at),
        batch(part.batch),
        group(part.head),
        key(part.first + at.warp * kWarpRows),
        row((batch * A.keys + key) * A.groups + group),
        queries((unsigned*)shared),
        cotangents(queries + tile * query_words),
        lse((float*)(cotangents + tile * cotangent_words)),
        delta(lse + tile) {}

  template <long long size, int N>
  MT_FN void read(unsigned (&a)[N][4], const T* from) const {
    read_rows<size, A.vector>(a, from + row * size, A.groups * size, part.left, at);
  }
  template <long long size, int M>
  MT_FN void write(T* to, const float (&sums)[M][4]) const {
    const float one[2] = {1.0f, 1.0f};
    write_rows<size>(to + row * size, A.groups * size, part.left, sums, one, at);
  }

  // Of `head`, from `query` on. Arguments as those of attention_key_grad_tiles().
  MT_FN void copy_tile(long long head, long long query, const unsigned long long* arg) const {
    const long long first = (batch * A.queries + query) * A.heads + head, left = A.queries - query;
    copy_rows<A.head_size, A.vector, tile>(queries, (const T*)arg[0] + first * A.head_size,
                                           A.heads * A.head_size, left);
    copy_rows<A.value_size, A.vector, tile>(cotangents, (const T*)arg[4] + first * A.value_size,
                                            A.heads * A.value_size, left);
    const long long at_lse = (batch * A.heads + head) * A.queries + query;
    for (int i = (int)threadIdx.x; i < tile; i += (int)kThreads) {
      lse[i] = i < left ? ((const float*)arg[3])[at_lse + i] : minus_infinity<float>();
      delta[i] = i < left ? ((const float*)arg[5])[at_lse + i] : 0.0f;
    }
  }
  // Calls use(head, first query) for each tile of which a pair with these keys takes part.
  template <class P, class Use>
  MT_FN void each_tile(const TilePairs<A, P>& in, const unsigned long long* arg,
                       const Use& use) const {
    for (long long head = group * A.readers(); head < (group + 1) * A.readers(); ++head) {
      for (long long query = 0; query < A.queries; query += tile) {
        if (in.none(query, tile, part.first, kBlockRows))
          continue;
        __syncthreads();
        copy_tile(head, query, arg);
        __syncthreads();
        if (part.left > 0 && !in.none(query, tile, key, kWarpRows))
          use(head, query);
      }
    }
  }
};

// dk and dv, over the query heads that read a key head. Arguments: q, k, v, lse, the cotangent of
// o, the sums of attention_query_grad_tiles(), dk, dv, those of Pairs. `shared`: tiles of KeyRows.
template <Attending A, class T>
MT_FN void attention_key_grad_tiles(const unsigned long long* arg, unsigned block,
                                    unsigned char* shared, AttentionScales<float> scales) {
  using P = Pairs<A, T, 8>;
  constexpr int kTiles = A.tile / 8;
  const P pairs{arg, scales};
  const TilePairs<A, P> in{pairs, (long long)arg[10]};
  const KeyRows<A, T> own(block, shared);
  unsigned k[kWords<T, A.head_size> / 8][4], v[kWords<T, A.value_size> / 8][4];
  own.template read<A.head_size>(k, (const T*)arg[1]);
  own.template read<A.value_size>(v, (const T*)arg[2]);
  float key_sums[kWords<T, A.head_size> * kOfWord<T> / 8][4] = {};
  float value_sums[kWords<T, A.value_size> * kOfWord<T> / 8][4] = {};
  own.each_tile(in, arg, [&](long long h, long long query) {
    float scores[kTiles][4] = {}, products[kTiles][4] = {};
    multiply_rows<T>(scores, k, own.queries, own.query_words, own.at);
    multiply_rows<T>(products, v, own.cotangents, own.cotangent_words, own.at);
    const bool some = in.some(query, A.tile, own.key, kWarpRows);
    each_place<kTiles>(own.at, [&](int n, int e, int row, int column) {
      const long long b = own.batch, i = query + column, j = own.key + row;
      const float lse = own.lse[column];
      const bool is_out = lse == minus_infinity<float>() || (some && !in.allows(b, h, i, j));
      const float p = is_out ? 0.0f : exp_of(scores[n][e] * scales.scale - lse);
      const float weight = pairs.factor(b, h, i, j);
      const float ds = p * (products[n][e] * weight - own.delta[column]) * scales.scale;
      scores[n][e] = p * weight;
      products[n][e] = is_out ? 0.0f : ds;
    });
    multiply_tile<T, kHasFewKeys<A>>(value_sums, scores, own.cotangents, own.cotangent_words,
                                     own.at);
    multiply_tile<T, kHasFewKeys<A>>(key_sums, products, own.queries, own.query_words, own.at);
  });
  own.template write<A.head_size>((T*)arg[6], key_sums);
  own.template write<A.value_size>((T*)arg[7], value_sums);
}

}  // namespace
}  // namespace mt
