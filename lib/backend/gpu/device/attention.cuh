// Attention, its gradients, and rotary positions (formulas: ir/ops/attention.cc).
//
// A thread computes a row of queries, or one of keys: nothing of queries x keys is stored, and sums
// have one order. Scores and sums are float, or double where elements are. What tensor cores can
// compute is computed by attention_tiles.cuh.
#pragma once

#include "backend/formulas/dropout.h"
#include "backend/gpu/device/elementwise.cuh"
#include "base/philox_block.h"

namespace mt {
namespace {

// Sizes of a shard, and which optional operands it has. Arrays: q (batch, queries, heads,
// head_size), k and v (batch, keys, groups, head_size or value_size), o like q with value_size, lse
// (batch, heads, queries).
struct Attending {
  long long batch, queries, keys, heads, groups;
  long long head_size, value_size;
  bool causal;
  long long window;  // 0: none
  bool has_query_mask, has_key_mask, has_segments, has_positions, has_mask, has_dropout;
  bool has_lse_cotangent;
  long long mask_batch, mask_head;         // rows of a mask from one sample, one head to the next
  long long global_heads, global_queries;  // of the whole array: places of dropout
  long long step;                          // rows that all threads take at once
  // Of attention_tiles.cuh: rows of a tile; whether rows are whole accesses of 16 bytes.
  int tile;
  bool vector;

  MT_FN constexpr long long readers() const { return heads / groups; }
};

template <class C>
struct AttentionScales {
  C scale;  // of scores
  C kept;   // 1 / (1 - rate)
  unsigned threshold;
};

template <class C>
MT_FN C minus_infinity();
template <>
MT_FN float minus_infinity<float>() {
  return float_of(0xff800000u);
}
template <>
MT_FN double minus_infinity<double>() {
  return double_of(0xfff0000000000000ull);
}

// Which pairs of query and key take part. Arguments from `first` on: the first sample, head and
// query of the shard; then of the optional arrays those that are there; with dropout at last the
// step, both halves of the seed, and the stream.
template <Attending A, class T, int first>
struct Pairs {
  using C = Compute<T>;
  static constexpr int query_mask = first + 3;
  static constexpr int key_mask = query_mask + A.has_query_mask;
  static constexpr int segments = key_mask + A.has_key_mask;
  static constexpr int positions = segments + 2 * A.has_segments;
  static constexpr int mask = positions + 2 * A.has_positions;
  static constexpr int lse_cotangent = mask + A.has_mask;
  static constexpr int random = lse_cotangent + A.has_lse_cotangent;

  const unsigned long long* arg;
  AttentionScales<C> scales;

  template <class Element>
  MT_FN const Element* array(int place) const {
    return (const Element*)arg[place];
  }
  MT_FN bool allows(long long b, long long h, long long i, long long j) const {
    if constexpr (A.has_query_mask) {
      if (array<unsigned char>(query_mask)[b * A.queries + i] == 0)
        return false;
    }
    if constexpr (A.has_key_mask) {
      if (array<unsigned char>(key_mask)[b * A.keys + j] == 0)
        return false;
    }
    if constexpr (A.has_segments) {
      if (array<int>(segments)[b * A.queries + i] != array<int>(segments + 1)[b * A.keys + j])
        return false;
    }
    if constexpr (A.has_mask) {
      if (array<unsigned char>(mask)[(b * A.mask_batch + h * A.mask_head + i) * A.keys + j] == 0)
        return false;
    }
    long long x = i + (long long)arg[first + 2], y = j;
    if constexpr (A.has_positions) {
      x = array<int>(positions)[b * A.queries + i];
      y = array<int>(positions + 1)[b * A.keys + j];
    }
    if (A.causal && x < y)
      return false;
    return A.window == 0 || (x - y < A.window && y - x < A.window);
  }
  // What dropout makes of a probability of 1.
  MT_FN C factor(long long b, long long h, long long i, long long j) const {
    if constexpr (A.has_dropout) {
      const long long sample = b + (long long)arg[first], head = h + (long long)arg[first + 1];
      const unsigned long long row =
          (unsigned long long)((sample * A.global_heads + head) * A.global_queries + i +
                               (long long)arg[first + 2]);
      const unsigned long long index = row * (unsigned long long)A.keys + (unsigned long long)j;
      const PhiloxBlock bits =
          philox(index / 4u, (unsigned)arg[random + 3], (unsigned)*(const long long*)arg[random],
                 (unsigned)arg[random + 1], (unsigned)arg[random + 2]);
      return kept(philox_lane(bits, (unsigned)index % 4u), scales.threshold, C(1), scales.kept);
    } else {
      return C(1);
    }
  }
};

// The product of two vectors of n elements.
template <long long n, class T>
MT_FN Compute<T> dot(const T* a, const T* b) {
  Compute<T> sum = 0;
  for (int d = 0; d < n; ++d)
    sum += load(a + d) * load(b + d);
  return sum;
}

// Arguments: q, k, v, o, lse, those of Pairs.
template <Attending A, class T>
MT_FN void attention(const unsigned long long* arg, unsigned block,
                     AttentionScales<Compute<T>> scales) {
  using C = Compute<T>;
  const Pairs<A, T, 5> pairs{arg, scales};
  const T *q = (const T*)arg[0], *k = (const T*)arg[1], *v = (const T*)arg[2];
  T* o = (T*)arg[3];
  C* lse = (C*)arg[4];
  for (long long row = (long long)block * kThreads + threadIdx.x;
       row < A.batch * A.queries * A.heads; row += A.step) {
    const long long h = row % A.heads, i = row / A.heads % A.queries;
    const long long b = row / (A.heads * A.queries);
    C sums[A.value_size] = {};
    C largest = minus_infinity<C>(), total = 0;
    for (long long j = 0; j < A.keys; ++j) {
      if (!pairs.allows(b, h, i, j))
        continue;
      const long long at = (b * A.keys + j) * A.groups + h / A.readers();
      const C score = dot<A.head_size>(q + row * A.head_size, k + at * A.head_size) * scales.scale;
      if (score > largest) {
        const C old = exp(largest - score);
        total *= old;
        for (int e = 0; e < A.value_size; ++e)
          sums[e] *= old;
        largest = score;
      }
      const C p = exp(score - largest);
      total += p;
      const C weight = p * pairs.factor(b, h, i, j);
      for (int e = 0; e < A.value_size; ++e)
        sums[e] += weight * load(v + at * A.value_size + e);
    }
    for (int e = 0; e < A.value_size; ++e)
      store(o + row * A.value_size + e, total == C(0) ? C(0) : sums[e] / total);
    lse[(b * A.heads + h) * A.queries + i] = largest + log(total);
  }
}

// dq of a row of queries, and sum(o do) - the cotangent of lse, which attention_key_grad() reads.
// Arguments: q, k, v, o, lse, the cotangent of o, dq, these sums, those of Pairs.
template <Attending A, class T>
MT_FN void attention_query_grad(const unsigned long long* arg, unsigned block,
                                AttentionScales<Compute<T>> scales) {
  using C = Compute<T>;
  using P = Pairs<A, T, 8>;
  const P pairs{arg, scales};
  const T *q = (const T*)arg[0], *k = (const T*)arg[1], *v = (const T*)arg[2];
  const T *o = (const T*)arg[3], *g = (const T*)arg[5];
  const C* lse = (const C*)arg[4];
  T* dq = (T*)arg[6];
  C* delta = (C*)arg[7];
  for (long long row = (long long)block * kThreads + threadIdx.x;
       row < A.batch * A.queries * A.heads; row += A.step) {
    const long long h = row % A.heads, i = row / A.heads % A.queries;
    const long long b = row / (A.heads * A.queries), at_lse = (b * A.heads + h) * A.queries + i;
    C own = 0;
    if constexpr (A.has_lse_cotangent)
      own = -pairs.template array<C>(P::lse_cotangent)[at_lse];
    for (int e = 0; e < A.value_size; ++e)
      own += load(o + row * A.value_size + e) * load(g + row * A.value_size + e);
    delta[at_lse] = own;
    C sums[A.head_size] = {};
    for (long long j = 0; j < A.keys && lse[at_lse] != minus_infinity<C>(); ++j) {
      if (!pairs.allows(b, h, i, j))
        continue;
      const long long at = (b * A.keys + j) * A.groups + h / A.readers();
      const C score = dot<A.head_size>(q + row * A.head_size, k + at * A.head_size);
      const C dp = dot<A.value_size>(g + row * A.value_size, v + at * A.value_size);
      const C ds = exp(score * scales.scale - lse[at_lse]) * (dp * pairs.factor(b, h, i, j) - own) *
                   scales.scale;
      for (int d = 0; d < A.head_size; ++d)
        sums[d] += ds * load(k + at * A.head_size + d);
    }
    for (int d = 0; d < A.head_size; ++d)
      store(dq + row * A.head_size + d, sums[d]);
  }
}

// dk and dv of a row of keys, over the query heads that read it. Arguments: q, k, v, lse, the
// cotangent of o, the sums of attention_query_grad(), dk, dv, those of Pairs.
template <Attending A, class T>
MT_FN void attention_key_grad(const unsigned long long* arg, unsigned block,
                              AttentionScales<Compute<T>> scales) {
  using C = Compute<T>;
  const Pairs<A, T, 8> pairs{arg, scales};
  const T *q = (const T*)arg[0], *k = (const T*)arg[1], *v = (const T*)arg[2];
  const T* g = (const T*)arg[4];
  const C *lse = (const C*)arg[3], *delta = (const C*)arg[5];
  T *dk = (T*)arg[6], *dv = (T*)arg[7];
  for (long long at = (long long)block * kThreads + threadIdx.x; at < A.batch * A.keys * A.groups;
       at += A.step) {
    const long long group = at % A.groups, j = at / A.groups % A.keys;
    const long long b = at / (A.groups * A.keys);
    C key_sums[A.head_size] = {}, value_sums[A.value_size] = {};
    for (long long h = group * A.readers(); h < (group + 1) * A.readers(); ++h) {
      for (long long i = 0; i < A.queries; ++i) {
        const long long at_lse = (b * A.heads + h) * A.queries + i;
        if (lse[at_lse] == minus_infinity<C>() || !pairs.allows(b, h, i, j))
          continue;
        const long long row = (b * A.queries + i) * A.heads + h;
        const C score = dot<A.head_size>(q + row * A.head_size, k + at * A.head_size);
        const C dp = dot<A.value_size>(g + row * A.value_size, v + at * A.value_size);
        const C p = exp(score * scales.scale - lse[at_lse]), weight = pairs.factor(b, h, i, j);
        const C ds = p * (dp * weight - delta[at_lse]) * scales.scale;
        for (int d = 0; d < A.head_size; ++d)
          key_sums[d] += ds * load(q + row * A.head_size + d);
        for (int e = 0; e < A.value_size; ++e)
          value_sums[e] += p * weight * load(g + row * A.value_size + e);
      }
    }
    for (int d = 0; d < A.head_size; ++d)
      store(dk + at * A.head_size + d, key_sums[d]);
    for (int e = 0; e < A.value_size; ++e)
      store(dv + at * A.value_size + e, value_sums[e]);
  }
}

// --- rotary positions --------------------------------------------------------------------------

// `pairs` of elements i and i + half of x (batch, steps, heads, 2 half) turn by the angles of
// (batch, steps, half) or (steps, half).
struct Rotating {
  long long pairs, step;
  long long half, heads, steps;
  bool has_batch, is_inverse;
};

// Arguments: x, cosines, sines, the result.
template <Rotating R, class T>
MT_FN void rotary(const unsigned long long* arg, unsigned block) {
  using C = Compute<T>;
  const T *x = (const T*)arg[0], *cosine = (const T*)arg[1], *sine = (const T*)arg[2];
  T* to = (T*)arg[3];
  for (long long pair = (long long)block * kThreads + threadIdx.x; pair < R.pairs; pair += R.step) {
    const long long head = pair / R.half, row = head / R.heads, i = pair % R.half;
    const long long angle = (R.has_batch ? row : row % R.steps) * R.half + i;
    const long long at = head * (2 * R.half) + i;
    const C a = load(x + at), b = load(x + at + R.half), c = load(cosine + angle);
    const C s = R.is_inverse ? -load(sine + angle) : load(sine + angle);
    store(to + at, a * c - b * s);
    store(to + at + R.half, b * c + a * s);
  }
}

}  // namespace
}  // namespace mt
