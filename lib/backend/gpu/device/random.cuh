// Random bits and dropout: the numbers of Philox4x32-10 (base/philox.h) at global indices, bit by
// bit those of the CPU. Dropout keeps x * scale where the bits of an element are at least a
// threshold.
#pragma once

#include "backend/formulas/dropout.h"
#include "backend/gpu/device/elementwise.cuh"
#include "base/philox_block.h"

namespace mt {
namespace {

// A shard of n elements, of which a thread computes `lanes` at a time: 4 where these are always one
// block of Philox, else 1.
struct Sharding {
  long long n, step;
  int lanes;
};

// Calls visit(i, bits) for each turn of this thread. Global indices are first + offset<Index>(i).
// Arguments: the step, both halves of the seed, both of `first`, the stream.
template <Sharding S, class X, Loop Index, class Visit>
MT_FN void each_random(const unsigned long long* arg, unsigned block, const Visit& visit) {
  using U = typename X::U;
  const unsigned step = (unsigned)*(const long long*)arg[0];
  const unsigned k0 = (unsigned)arg[1], k1 = (unsigned)arg[2];
  const unsigned long long first = arg[4] << 32 | arg[3];
  U i = ((U)block * kThreads + threadIdx.x) * (U)S.lanes;
  for (; i < (U)S.n; i += (U)S.step) {
    const unsigned long long index = first + offset<X, Index>(i);
    PhiloxBlock bits = philox(index / 4u, (unsigned)arg[5], step, k0, k1);
    if constexpr (S.lanes == 1)
      bits.v[0] = philox_lane(bits, (unsigned)index % 4u);
    visit(i, bits);
  }
}

// `is_aligned`: the result takes whole blocks. Argument 6: the result.
template <Sharding S, class X, Loop Index, bool is_aligned>
MT_FN void random_bits(const unsigned long long* arg, unsigned block) {
  using U = typename X::U;
  unsigned* to = (unsigned*)arg[6];
  each_random<S, X, Index>(arg, block, [&](U i, const PhiloxBlock& bits) {
    if constexpr (is_aligned) {
      write(to, i, (U)S.n, bits.v);
    } else {
#pragma unroll
      for (int e = 0; e < S.lanes; ++e) {
        if (i + e < (U)S.n)
          to[i + e] = bits.v[e];
      }
    }
  });
}

// Arguments 6 and 7: x and the result.
template <Sharding S, class X, Loop Index, bool is_aligned, class T>
MT_FN void dropout(const unsigned long long* arg, unsigned block, unsigned threshold,
                   Compute<T> scale) {
  using U = typename X::U;
  const T* x = (const T*)arg[6];
  T* to = (T*)arg[7];
  each_random<S, X, Index>(arg, block, [&](U i, const PhiloxBlock& bits) {
    if constexpr (is_aligned) {
      Compute<T> v[4];
      read(v, x, i, (U)S.n);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        v[e] = kept(bits.v[e], threshold, v[e], scale);
      write(to, i, (U)S.n, v);
    } else {
#pragma unroll
      for (int e = 0; e < S.lanes; ++e) {
        if (i + e < (U)S.n)
          store(to + i + e, kept(bits.v[e], threshold, (Compute<T>)load(x + i + e), scale));
      }
    }
  });
}

}  // namespace
}  // namespace mt
