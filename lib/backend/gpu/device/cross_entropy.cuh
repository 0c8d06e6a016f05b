// Losses of tokens from rows of logits, and their gradients in place (formulas:
// ir/ops/linear_cross_entropy.cc).
//
// `lanes` threads, a warp or a block, compute a row. Lane l joins the classes of its accesses l,
// l + lanes, ...; then lanes join as in reduce.cuh, so that sums have one order.
#pragma once

#include "backend/gpu/device/scan.cuh"

namespace mt {
namespace {

struct CrossEntropy {
  long long tokens, classes, row;  // `row`: elements from a token's logits to the next
  long long start, global_classes;
  unsigned lanes;
  int pack;  // classes of an access
  bool has_weights, has_lse;
};

// The first of the largest logits of a lane's classes, and the sum of exp(logit - largest), in one
// pass: rows of many classes come from memory each time.
template <class C>
struct Exponentials {
  Entry<C> best;
  C sum;
};
template <CrossEntropy R, class T>
MT_FN Exponentials<Compute<T>> exponentials(const T* logits, unsigned lane) {
  using C = Compute<T>;
  Exponentials<C> all = {{0, -1}, 0};
  for (long long v = (long long)lane * R.pack; v < R.classes; v += (long long)R.lanes * R.pack) {
    C x[R.pack];
    read<R.pack>(x, logits, v, R.classes);
    Entry<C> best = all.best;
#pragma unroll
    for (int e = 0; e < R.pack; ++e) {
      if (v + e < R.classes)
        best = first_of(best, Entry<C>{x[e], (int)(v + e)});
    }
    if (best.place != all.best.place) {
      if (all.sum != C(0))
        all.sum *= exp(all.best.value - best.value);
      all.best = best;
    }
    // Logits of minus infinity have no part, also where a lane has seen no others.
    const C base = best.value == smallest<C>() ? C(0) : best.value;
#pragma unroll
    for (int e = 0; e < R.pack; ++e) {
      if (v + e < R.classes)
        all.sum += exp(x[e] - base);
    }
  }
  return all;
}
// Puts factor exp(logit - base) in the place of each logit, less `weight` for the class `own`.
template <CrossEntropy R, class T>
MT_FN void put_gradients(T* logits, unsigned lane, long long own, Compute<T> factor,
                         Compute<T> base, Compute<T> weight) {
  for (long long v = (long long)lane * R.pack; v < R.classes; v += (long long)R.lanes * R.pack) {
    Compute<T> x[R.pack];
    read<R.pack>(x, logits, v, R.classes);
#pragma unroll
    for (int e = 0; e < R.pack; ++e) {
      const Compute<T> g = factor * exp(x[e] - base);
      x[e] = v + e == own ? g - weight : g;
    }
    write(logits, v, R.classes, x);
  }
}

// The sum, or the first of the largest, over all lanes of a row; every lane has it. `shared`: a
// value for each warp, where a row has several.
template <unsigned lanes, class A, class Join, class Other>
MT_FN A over_lanes(A a, const Join& join, const Other& other, unsigned char* shared) {
  for (unsigned n = 16; n > 0; n /= 2)
    a = join(a, other(a, n));
  if constexpr (lanes > 32) {
    A* const values = (A*)shared;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
      values[threadIdx.x / 32] = a;
    __syncthreads();
    a = values[0];
    for (unsigned w = 1; w < lanes / 32; ++w)
      a = join(a, values[w]);
  }
  return a;
}

// Arguments: logits, ids, loss, hits, largest, sum, picked, first, weights, lse; 0: absent.
template <CrossEntropy R, class T>
MT_FN void cross_entropy(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  using C = Compute<T>;
  constexpr unsigned lanes = R.lanes;
  constexpr long long classes = R.classes;
  const unsigned lane = threadIdx.x % lanes;
  const long long i = (long long)block * (kThreads / lanes) + threadIdx.x / lanes;
  const bool is_row = i < R.tokens;
  T* const logits = (T*)arg[0] + (is_row ? i : 0) * R.row;
  const long long id = is_row ? ((const int*)arg[1])[i] : -1;
  const bool is_class = id >= 0 && id < R.global_classes;
  const long long own = is_class ? id - R.start : -1;
  const C weight = R.has_weights && is_class ? ((const C*)arg[8])[i] : C(0);
  if constexpr (R.has_lse) {
    if (!is_row)
      return;
    put_gradients<R>(logits, lane, own, weight, ((const C*)arg[9])[i], weight);
    return;
  }
  Exponentials<C> own_part = {{0, -1}, 0};
  if (is_row)
    own_part = exponentials<R>(logits, lane);
  const Entry<C> best = over_lanes<lanes>(
      own_part.best, [](Entry<C> a, Entry<C> b) { return first_of(a, b); },
      [](Entry<C> a, unsigned n) { return other_entry(a, n); }, shared);
  const C part =
      own_part.best.place < 0 ? C(0) : own_part.sum * exp(own_part.best.value - best.value);
  const C sum = over_lanes<lanes>(
      part, [](C a, C b) { return a + b; }, [](C a, unsigned n) { return other_lane(a, n); },
      shared);
  if (!is_row)
    return;
  const bool is_here = own >= 0 && own < classes;
  const C picked = is_here ? load(logits + own) : C(0);
  if constexpr (R.has_weights) {
    // The picked logit is read by all lanes and written by one.
    if constexpr (lanes > 32)
      __syncthreads();
    else
      __syncwarp();
    put_gradients<R>(logits, lane, own, weight / sum, best.value, weight);
  }
  if (lane != 0)
    return;
  const bool is_first = is_here && best.place == own && best.value == best.value;
  const C values[] = {is_class ? log(sum) - (picked - best.value) : C(0),
                      C(is_first),
                      best.value,
                      sum,
                      picked,
                      is_first                              ? C(1)
                      : is_class && R.start + classes <= id ? C(-1)
                                                            : C(0)};
  for (int r = 0; r < 6; ++r) {
    if (arg[2 + r] != 0)
      ((C*)arg[2 + r])[i] = values[r];
  }
}

}  // namespace
}  // namespace mt
