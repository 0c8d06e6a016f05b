// Along one dimension of x (outer, size, inner): the place of the largest, running sums, the k
// largest. No atomics.
//
// Elements are in the order NaN, then the largest, then the first. The place of the largest is a
// reduction (reduce.cuh) over elements with their places; its parts have results that are the terms
// of a second one. The k largest of a row are found in k passes, each for the first behind the one
// before, or, where k is large, by counting for each element those before it.
#pragma once

#include "backend/gpu/device/block_scan.cuh"
#include "backend/gpu/device/reduce.cuh"

namespace mt {
namespace {

struct Scanning {
  long long outer, size, inner;
};

// --- elements in order -------------------------------------------------------------------------

// `place` < 0: none.
template <class V>
struct Entry {
  V value;
  int place;
};
template <class V>
MT_FN bool is_larger(V a, V b) {
  return a > b || (a != a && b == b);
}
template <class V>
MT_FN bool is_before(Entry<V> a, Entry<V> b) {
  return is_larger(a.value, b.value) || (!is_larger(b.value, a.value) && a.place < b.place);
}
template <class V>
MT_FN Entry<V> first_of(Entry<V> a, Entry<V> b) {
  return a.place < 0 ? b : b.place < 0 || is_before(a, b) ? a : b;
}
template <class V>
MT_FN Entry<V> other_entry(Entry<V> a, unsigned bit) {
  return {other_lane(a.value, bit), other_lane(a.place, bit)};
}

// --- the place of the largest ------------------------------------------------------------------

template <Scanning S, class X, class T, bool has_candidates>
struct ArgmaxTerms {
  using U = typename X::U;
  using A = Entry<Compute<T>>;
  const T* x;
  int* out;
  const int* candidates;

  static MT_FN A none() { return {0, -1}; }
  static MT_FN A join(A a, A b) { return first_of(a, b); }
  static MT_FN A other(A a, unsigned bit) { return other_entry(a, bit); }
  MT_FN A term(U k, U r) const {
    constexpr U inner = S.inner, rows = (U)S.outer * inner;
    const U row = k / inner * (U)S.size * inner + k % inner;
    const U place = has_candidates ? (U)candidates[r * rows + k] : r;
    return {load(x + row + place * inner), (int)place};
  }
  MT_FN void result(U k, unsigned part, A a) const {
    out[(U)part * ((U)S.outer * (U)S.inner) + k] = a.place;
  }
};

// Arguments: x, places, and the places of parts where has_candidates: their terms.
template <Reducing P, Scanning S, class X, class T, bool has_candidates>
MT_FN void argmax(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  const ArgmaxTerms<S, X, T, has_candidates> terms = {(const T*)arg[0], (int*)arg[1],
                                                      (const int*)arg[2]};
  reduce<P, X>(terms, block, shared);
}

// --- running sums ------------------------------------------------------------------------------

// Each column by one thread. Arguments: x, sums.
template <Scanning S, class X, class T>
MT_FN void cumsum_columns(const unsigned long long* arg, unsigned block) {
  using V = Compute<T>;
  using U = typename X::U;
  constexpr U size = S.size, inner = S.inner, rows = (U)S.outer * inner;
  const U i = (U)block * kThreads + threadIdx.x;
  if (i >= rows)
    return;
  const U first = i / inner * size * inner + i % inner;
  const T* x = (const T*)arg[0] + first;
  T* out = (T*)arg[1] + first;
  V sum = V(0);
  for (U s = 0; s < size; ++s) {
    sum = add(sum, load(x + s * inner));
    store(out + s * inner, sum);
  }
}

// One block a row, kThreads * items elements at a time. Arguments: x, sums. `shared`: kThreads
// values.
template <Scanning S, class X, class T>
MT_FN void cumsum_rows(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  using V = Compute<T>;
  using U = typename X::U;
  constexpr U size = S.size, inner = S.inner, items = 8;
  const U first = block / inner * size * inner + block % inner;
  const T* x = (const T*)arg[0] + first;
  T* out = (T*)arg[1] + first;
  V before = V(0);
  for (U begin = 0; begin < size; begin += kThreads * items) {
    const U s = begin + threadIdx.x * items;
    V sums[items], sum = V(0), all;
#pragma unroll
    for (U i = 0; i < items; ++i) {
      if (s + i < size)
        sum = add(sum, load(x + (s + i) * inner));
      sums[i] = sum;
    }
    block_scan(sum, all, shared);
    const V left = threadIdx.x == 0 ? before : add(before, ((const V*)shared)[threadIdx.x - 1]);
#pragma unroll
    for (U i = 0; i < items; ++i) {
      if (s + i < size)
        store(out + (s + i) * inner, add(left, sums[i]));
    }
    before = add(before, all);
  }
}

// --- the k largest -----------------------------------------------------------------------------

// `lanes` threads a row. Arguments: x, values, places. `shared`: kThreads entries where lanes > 32.
template <Scanning S, long long k, unsigned lanes, class X, class T>
MT_FN void top_few(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  using U = typename X::U;
  using A = Entry<Compute<T>>;
  constexpr U size = S.size, outer = S.outer, chosen = k;
  constexpr A none = {0, -1};
  const T* x = (const T*)arg[0];
  T* values = (T*)arg[1];
  int* places = (int*)arg[2];
  const unsigned lane = threadIdx.x % lanes;
  const U row = (U)block * (kThreads / lanes) + threadIdx.x / lanes;
  A last = none;
  for (U n = 0; n < chosen; ++n) {
    A best = none;
    if (row < outer) {
      for (U i = lane; i < size; i += lanes) {
        const A entry = {load(x + row * size + i), (int)i};
        if (n == 0 || is_before(last, entry))
          best = first_of(best, entry);
      }
    }
    for (unsigned d = (lanes < 32u ? lanes : 32u) / 2; d > 0; d /= 2)
      best = first_of(best, other_entry(best, d));
    if constexpr (lanes > 32u) {
      A* all = (A*)shared;
      __syncthreads();
      all[threadIdx.x] = best;
      __syncthreads();
      for (unsigned d = 0; d < kThreads; d += 32)
        best = first_of(best, all[d]);
    }
    if (lane == 0 && row < outer) {
      store(values + row * chosen + n, best.value);
      places[row * chosen + n] = best.place;
    }
    last = best;
  }
}

// A thread an element, `blocks` blocks a row. Arguments: x, values, places.
template <Scanning S, long long k, unsigned blocks, class X, class T>
MT_FN void top_many(const unsigned long long* arg, unsigned block) {
  using U = typename X::U;
  using A = Entry<Compute<T>>;
  constexpr U size = S.size, chosen = k;
  T* values = (T*)arg[1];
  int* places = (int*)arg[2];
  const U row = block / blocks, i = (U)(block % blocks) * kThreads + threadIdx.x;
  if (i >= size)
    return;
  const T* from = (const T*)arg[0] + row * size;
  const A entry = {load(from + i), (int)i};
  U rank = 0;
  for (U j = 0; j < size; ++j)
    rank += is_before(A{load(from + j), (int)j}, entry);
  if (rank < chosen) {
    store(values + row * chosen + rank, entry.value);
    places[row * chosen + rank] = entry.place;
  }
}

}  // namespace
}  // namespace mt
