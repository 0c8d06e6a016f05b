// Reductions inside of kernels over rows, whose other parts are generated (row_text.cc).
//
// `lanes` threads of a block compute a row. Lane l has the columns l, l + lanes, ... of it, `count`
// at a time, and joins them as a reduction joins its terms (reduce.cuh), so that results have the
// bits that a kernel for the reduction alone gives them. Every lane ends with the result.
#pragma once

#include "backend/gpu/device/reduce.cuh"

namespace mt {
namespace {

// The four values of a lane.
template <class Op, class A>
struct RowTerms {
  A a = Op::template none<A>(), b = a, c = a, d = a;
};

// Takes x[e], which stands in column base + e * lanes, where that is before `end`.
template <unsigned lanes, class Op, class A, int count, class U>
MT_FN void take(RowTerms<Op, A>& terms, const A (&x)[count], U base, U end) {
#pragma unroll
  for (int e = 0; e < count; e += 4) {
    if (e + 3 < count && base + (e + 3) * lanes < end) {
      terms.a = Op::join(terms.a, x[e]);
      terms.b = Op::join(terms.b, x[e + 1 < count ? e + 1 : 0]);
      terms.c = Op::join(terms.c, x[e + 2 < count ? e + 2 : 0]);
      terms.d = Op::join(terms.d, x[e + 3 < count ? e + 3 : 0]);
    } else {
#pragma unroll
      for (int more = e; more < (e + 4 < count ? e + 4 : count); ++more) {
        if (base + more * lanes < end)
          terms.a = Op::join(terms.a, x[more]);
      }
    }
  }
}

// The result of the row. `is_used`: whether the block has read `shared` since the last barrier.
template <unsigned lanes, bool is_used, class Op, class A>
MT_FN A join_lanes(const RowTerms<Op, A>& terms, unsigned char* shared) {
  A all = Op::join(Op::join(terms.a, terms.b), Op::join(terms.c, terms.d));
  if constexpr (lanes > 1) {
#pragma unroll
    for (unsigned n = (lanes < 32u ? lanes : 32u) / 2; n >= 1; n /= 2)
      all = Op::join(all, other_lane(all, n));
  }
  if constexpr (lanes > 32) {
    const unsigned t = threadIdx.x, first = t - t % lanes;
    A* values = (A*)shared;
    if constexpr (is_used)
      __syncthreads();
    values[t] = all;
    __syncthreads();
    all = values[first];
#pragma unroll
    for (unsigned n = 32; n < lanes; n += 32)
      all = Op::join(all, values[first + n]);
  } else if constexpr (lanes > 1) {
    all = (A)__shfl_sync(0xffffffffu, all, 0, (int)lanes);
  }
  return all;
}

}  // namespace
}  // namespace mt
