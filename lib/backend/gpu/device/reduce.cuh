// Reductions of many terms to each of many results, in an order that depends only on their numbers.
//
// `lanes` threads compute one result. Lane l joins its terms l, l + lanes, l + 2 lanes, ... into
// four values in turn, a, b, c and d, and what is left at the end into a; then (a . b) . (c . d).
// Of n lanes in a warp, every one joins the lane whose number differs by n / 2, then by n / 4, ...;
// what several warps have is joined by the first, in their order. Where the terms are in parts, a
// part has part_terms of them and a result of its own.
#pragma once

#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

struct Reducing {
  unsigned lanes, groups;  // groups: blocks of a part
  long long outputs, terms, part_terms;
  bool terms_adjacent;  // neighbours in memory are terms of one result
};

// --- sums, maxima and minima -------------------------------------------------------------------

template <class T>
MT_FN T largest() {
  return static_cast<T>(~0ull >> (64 - 8 * sizeof(T) + (static_cast<T>(-1) < T(1) ? 1 : 0)));
}
template <>
MT_FN float largest<float>() {
  return float_of(0x7f800000u);
}
template <>
MT_FN double largest<double>() {
  return double_of(0x7ff0000000000000ull);
}
template <class T>
MT_FN T smallest() {
  return static_cast<T>(-1) < T(1) ? static_cast<T>(-largest<T>() - 1) : T(0);
}
template <>
MT_FN float smallest<float>() {
  return -largest<float>();
}
template <>
MT_FN double smallest<double>() {
  return -largest<double>();
}

// `none` is the neutral element.
struct Sum {
  template <class A>
  static MT_FN A none() {
    return A(0);
  }
  template <class A>
  static MT_FN A join(A a, A b) {
    return add(a, b);
  }
};
struct Max {
  template <class A>
  static MT_FN A none() {
    return smallest<A>();
  }
  template <class A>
  static MT_FN A join(A a, A b) {
    return max(a, b);
  }
};
struct Min {
  template <class A>
  static MT_FN A none() {
    return largest<A>();
  }
  template <class A>
  static MT_FN A join(A a, A b) {
    return min(a, b);
  }
};

// What the thread has whose number differs by this bit.
template <class A>
MT_FN A other_lane(A a, unsigned bit) {
  return (A)__shfl_xor_sync(0xffffffffu, a, bit);
}

// --- the reduction -----------------------------------------------------------------------------

// How numbers are joined, for what follows.
template <class Number, class Op>
struct NumberTerms {
  using A = Number;
  static MT_FN A none() { return Op::template none<A>(); }
  static MT_FN A join(A a, A b) { return Op::join(a, b); }
  static MT_FN A other(A a, unsigned bit) { return other_lane(a, bit); }
};

// `terms` has, beside the above, A term(U output, U term) and void result(U output, unsigned part,
// A). `shared`: kThreads values where more than a warp computes a result.
template <Reducing P, class X, class Terms>
MT_FN void reduce(const Terms& terms, unsigned block, unsigned char* shared) {
  using U = typename X::U;
  using A = typename Terms::A;
  constexpr unsigned lanes = P.lanes, rows = kThreads / P.lanes;
  constexpr U part_terms = (U)P.part_terms, num_terms = (U)P.terms;
  const unsigned t = threadIdx.x, part = block / P.groups;
  const unsigned lane = P.terms_adjacent ? t % lanes : t / rows;
  const U output = (U)(block % P.groups) * rows + (P.terms_adjacent ? t / lanes : t % rows);
  A all = terms.none();
  if (output < (U)P.outputs) {
    const U last = ((U)part + 1) * part_terms, end = last < num_terms ? last : num_terms;
    U r = (U)part * part_terms + lane;
    A b = terms.none(), c = terms.none(), d = terms.none();
    for (; r + 3 * lanes < end; r += 4 * lanes) {
      all = terms.join(all, terms.term(output, r));
      b = terms.join(b, terms.term(output, r + lanes));
      c = terms.join(c, terms.term(output, r + 2 * lanes));
      d = terms.join(d, terms.term(output, r + 3 * lanes));
    }
    for (; r < end; r += lanes)
      all = terms.join(all, terms.term(output, r));
    all = terms.join(terms.join(all, b), terms.join(c, d));
  }
  // Lanes of one result differ in the bits of the thread's number from `low` up to `high`.
  constexpr unsigned low = P.terms_adjacent ? 1 : rows, high = low * lanes;
  constexpr unsigned in_warp = high < 32 ? high : 32, step = low < 32 ? 32 : low;
  if constexpr (in_warp > low) {
    for (unsigned n = in_warp / 2; n >= low; n /= 2)
      all = terms.join(all, terms.other(all, n));
  }
  if constexpr (high > step) {
    A* values = (A*)shared;
    values[t] = all;
    __syncthreads();
    if (lane == 0) {
      for (unsigned n = step; n < high; n += step)
        all = terms.join(all, values[t + n]);
    }
  }
  if (lane == 0 && output < (U)P.outputs)
    terms.result(output, part, all);
}

// --- over dimensions of a view -----------------------------------------------------------------

// Output k at Kept of x, term r at Gone; k is stored at Place of its part.
template <Reducing P, class X, class T, class R, class Op, Loop Kept, Loop Gone, Loop Place>
struct ViewTerms : NumberTerms<Compute<T>, Op> {
  using U = typename X::U;
  using I = typename X::I;
  using A = Compute<T>;
  const T* x;
  R* out;
  MT_FN A term(U k, U r) const { return load(x + offset<X, Kept>(k) + offset<X, Gone>(r)); }
  MT_FN void result(U k, unsigned part, A a) const {
    store(out + (I)part * (I)P.outputs + offset<X, Place>(k), (Compute<R>)a);
  }
};

// Arguments: x, results.
template <Reducing P, class X, class T, class R, class Op, Loop Kept, Loop Gone, Loop Place>
MT_FN void reduce_view(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  ViewTerms<P, X, T, R, Op, Kept, Gone, Place> terms;
  terms.x = (const T*)arg[0];
  terms.out = (R*)arg[1];
  reduce<P, X>(terms, block, shared);
}

}  // namespace
}  // namespace mt
