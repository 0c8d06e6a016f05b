// Collectives between virtual devices of one GPU: regions copied, or joined in the order of their
// sources.
#pragma once

#include "backend/gpu/device/reduce.cuh"

namespace mt {
namespace {

// What the regions of a launch have in common.
struct Combining {
  int num_sources;
  bool is_stepped;  // sources are equally far apart
  bool in_memory;   // the words of the only region are there
  int pack;         // elements of an access
};

// Words of a launch become words in memory. Arguments: to, the words.
template <unsigned count>
MT_FN void store_words(const unsigned long long* arg, unsigned) {
  for (unsigned i = threadIdx.x; i < count; i += kThreads)
    ((unsigned long long*)arg[0])[i] = arg[1 + i];
}

// Arguments: blocks of a region; `head` words in all before the regions; then of each region the
// address of the result and those of its sources, or of the first source and the bytes to the next.
// Where these words are in memory, their address instead.
template <Combining C, unsigned head>
MT_FN const unsigned long long* region_of(const unsigned long long* arg, unsigned block) {
  if constexpr (C.in_memory)
    return (const unsigned long long*)arg[head];
  constexpr unsigned words = C.is_stepped ? 3u : 1u + C.num_sources;
  return arg + head + block / (unsigned)arg[0] * words;
}
template <Combining C, class E>
MT_FN const E* source_of(const unsigned long long* region, int s) {
  return (const E*)(C.is_stepped ? region[1] + (s - 1) * region[2] : region[s]);
}

// Elements [o, o + pack) of the result, before `to_end`, from those at i of each source.
template <Combining C, class E, class Op, class I>
MT_FN void combine_pack(const unsigned long long* region, I o, I to_end, I i, I from_end) {
  Compute<E> sum[C.pack], x[C.pack];
  read(sum, (const E*)region[1], i, from_end);
#pragma unroll 8
  for (int s = 2; s <= C.num_sources; ++s) {
    read(x, source_of<C, E>(region, s), i, from_end);
#pragma unroll
    for (int e = 0; e < C.pack; ++e)
      sum[e] = Op::join(sum[e], x[e]);
  }
  write((E*)region[0], o, to_end, sum);
}

// Side by side. Second and third argument: elements, or words, and the step of threads.
template <Combining C, class E, class Op>
MT_FN void combine_flat(const unsigned long long* arg, unsigned block) {
  const unsigned long long* region = region_of<C, 3>(arg, block);
  const unsigned long long part = block % (unsigned)arg[0], n = arg[1], step = arg[2];
  for (unsigned long long i = (part * kThreads + threadIdx.x) * C.pack; i < n; i += step) {
    if constexpr (C.num_sources == 1)
      ((E*)region[0])[i] = ((const E*)region[1])[i];
    else
      combine_pack<C, E, Op>(region, i, n, i, n);
  }
}

// In a loop over accesses. `E`: the type of elements, or words where they are only copied.
template <Combining C, class X, class E, class Op, Loop To, Loop From, long long total,
          long long step>
MT_FN void combine(const unsigned long long* arg, unsigned block) {
  using U = typename X::U;
  using I = typename X::I;
  const unsigned long long* region = region_of<C, 1>(arg, block);
  const unsigned part = block % (unsigned)arg[0];
  for (U j = (U)part * kThreads + threadIdx.x; j < (U)total; j += (U)step) {
    const I o = offset<X, To>(j), i = offset<X, From>(j);
    if constexpr (C.num_sources == 1)
      ((E*)region[0])[o] = ((const E*)region[1])[i];
    else
      combine_pack<C, E, Op>(region, o, o + C.pack, i, i + C.pack);
  }
}

}  // namespace
}  // namespace mt
