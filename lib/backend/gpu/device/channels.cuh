// Sums per channel, in float64: of u, and of u v, over the rows of two matrices. One reduction
// (reduce.cuh) computes both.
#pragma once

#include "backend/gpu/device/reduce.cuh"

namespace mt {
namespace {

struct ChannelSums {
  double u, product;
};

template <class X, class T, long long channels, bool is_same>
struct ChannelTerms {
  using U = typename X::U;
  using A = ChannelSums;
  const T* u;
  const T* v;
  double* out;

  static MT_FN A none() { return {0.0, 0.0}; }
  static MT_FN A join(A a, A b) { return {a.u + b.u, a.product + b.product}; }
  static MT_FN A other(A a, unsigned bit) {
    return {other_lane(a.u, bit), other_lane(a.product, bit)};
  }
  MT_FN A term(U k, U r) const {
    const double x = (double)load(u + r * (U)channels + k);
    return {x, is_same ? x * x : x * (double)load(v + r * (U)channels + k)};
  }
  MT_FN void result(U k, unsigned part, A a) const {
    out[(U)part * 2 * (U)channels + k] = a.u;
    out[((U)part * 2 + 1) * (U)channels + k] = a.product;
  }
};

// Arguments: u, v, sums (parts, 2, channels). is_same: v is u.
template <Reducing P, class X, class T, long long channels, bool is_same>
MT_FN void channel_sums(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  const ChannelTerms<X, T, channels, is_same> terms = {(const T*)arg[0], (const T*)arg[1],
                                                       (double*)arg[2]};
  reduce<P, X>(terms, block, shared);
}

}  // namespace
}  // namespace mt
