// Recurrent cells over all steps, and their gradient (formulas/rnn.h). A block computes a batch
// item, one step after the other; its threads share pixels and units. Sums have one order.
//
// A step has few terms for each thread, and memory answers late. Thus products read some accesses
// of the recurrent kernel before they add the first, and neighbours read neighbouring addresses.
#pragma once

#include "backend/formulas/rnn.h"
#include "backend/gpu/device/reduce.cuh"

namespace mt {
namespace {

// How a block computes. pack: elements of an access to the kernel, which divide the units.
// in_shared: scratch is in shared memory, behind the partial sums.
struct RnnBlock {
  int pack;
  bool in_shared, is_gradient;
};

// A batch item; its rows are its pixels. Arguments: x, kernel, h0, c0, bias, mask, h, c, dh, dc,
// dx, dh0, dc0, extra, scratch, drop, gates; 0 where a cell has none. parts: kThreads * V values in
// shared memory.
template <RnnSizes n, class E, int V>
struct RnnItem {
  using T = Compute<E>;
  using U =
      typename Either<(n.pixels() * n.columns() < (1ll << 31)), unsigned, unsigned long long>::type;
  static constexpr int kInFlight = 16;  // accesses of a thread in the product
  static constexpr int kOutputs = 8;    // of the lanes that compute a transposed product
  const unsigned long long* arg;
  long long item;
  T* parts;

  MT_FN T get_at(int array, long long i) const { return load((const E*)arg[array] + i); }
  MT_FN void set_at(int array, long long i, T v) const { store((E*)arg[array] + i, v); }
  MT_FN long long at(long long row, long long t, long long j, long long size) const {
    return ((item * n.steps + t) * n.pixels() + row) * size + j;
  }
  MT_FN long long state(long long row, long long j, long long size) const {
    return (item * n.pixels() + row) * size + j;
  }

  MT_FN T x(long long row, long long t, long long j) const {
    return get_at(0, at(row, t, j, n.columns()));
  }
  MT_FN T h0(long long row, long long j) const { return get_at(2, state(row, j, n.units)); }
  MT_FN T c0(long long row, long long j) const { return get_at(3, state(row, j, n.units)); }
  MT_FN T bias(long long j) const { return get_at(4, j); }
  MT_FN T drop(long long row, long long j) const { return get_at(15, state(row, j, n.columns())); }
  MT_FN T h(long long row, long long t, long long j) const {
    return get_at(6, at(row, t, j, n.units));
  }
  MT_FN T c(long long row, long long t, long long j) const {
    return get_at(7, at(row, t, j, n.units));
  }
  MT_FN T dh(long long row, long long t, long long j) const {
    return get_at(8, at(row, t, j, n.units));
  }
  MT_FN T dc(long long row, long long t, long long j) const {
    return get_at(9, at(row, t, j, n.units));
  }
  MT_FN void set_h(long long row, long long t, long long j, T v) const {
    set_at(6, at(row, t, j, n.units), v);
  }
  MT_FN void set_c(long long row, long long t, long long j, T v) const {
    set_at(7, at(row, t, j, n.units), v);
  }
  MT_FN void set_dx(long long row, long long t, long long j, T v) const {
    set_at(10, at(row, t, j, n.columns()), v);
  }
  MT_FN void set_dh0(long long row, long long j, T v) const {
    set_at(11, state(row, j, n.units), v);
  }
  MT_FN void set_dc0(long long row, long long j, T v) const {
    set_at(12, state(row, j, n.units), v);
  }
  MT_FN void set_extra(long long row, long long t, long long j, T v) const {
    set_at(13, at(row, t, j, n.extra_columns()), v);
  }
  MT_FN T gate(long long row, long long t, long long j) const {
    return get_at(16, at(row, t, j, n.gate_columns()));
  }
  MT_FN void set_gate(long long row, long long t, long long j, T v) const {
    set_at(16, at(row, t, j, n.gate_columns()), v);
  }

  // f(row, column) of the columns of all rows, each by one thread, always the same.
  template <class F>
  MT_FN void share(long long columns, const F& f) const {
    for (U i = threadIdx.x; i < (U)(n.pixels() * columns); i += kThreads)
      f(i / (U)columns, i % (U)columns);
  }
  template <class F>
  MT_FN void each(const F& f) const {
    share(n.units, f);
  }
  template <class Valid, class Other>
  MT_FN void each_of(long long t, const Valid& valid, const Other& other) const {
    if (!n.has_mask || ((const unsigned char*)arg[5])[item * n.steps + t] != 0)
      share(n.units, valid);
    else
      share(n.units, other);
  }

  // --- q = in R ---

  // Adds the products of the first `count` of `in` and V columns of as many rows of the kernel.
  template <bool is_whole>
  MT_FN void add_terms(T (&sums)[V], const T* in, const E* kernel, int count) const {
    Pack<E, V> k[kInFlight] = {};
#pragma unroll
    for (int e = 0; e < kInFlight; ++e) {
      if (is_whole || e < count)
        k[e] = *(const Pack<E, V>*)(kernel + e * n.columns());
    }
#pragma unroll
    for (int e = 0; e < kInFlight; ++e) {
      if (is_whole || e < count) {
#pragma unroll
        for (int v = 0; v < V; ++v)
          sums[v] = fused<T>(in[e], get(k[e].v[v]), sums[v]);
      }
    }
  }
  // Adds the units [first, last) of all taps to V columns of q.
  MT_FN void add_product(T (&sums)[V], const T* in, long long row, long long column, int first,
                         int last) const {
    for (int tap = 0; tap < n.taps(); ++tap) {
      const long long from = n.neighbour(row, tap, 1);
      if (from < 0)
        continue;
      const T* h = in + from * n.units;
      const E* kernel = (const E*)arg[1] + tap * n.units * n.columns() + column;
      int i = first;
      for (; i + kInFlight <= last; i += kInFlight)
        add_terms<true>(sums, h + i, kernel + i * n.columns(), kInFlight);
      if (n.units % kInFlight != 0 && i < last)
        add_terms<false>(sums, h + i, kernel + i * n.columns(), last - i);
    }
  }
  MT_FN void set_pack(T* to, const T (&sums)[V]) const {
    Pack<T, V> pack;
#pragma unroll
    for (int v = 0; v < V; ++v)
      pack.v[v] = sums[v];
    *(Pack<T, V>*)to = pack;
  }
  // Each of `groups` groups of threads adds a part of the units; then sums of groups are added.
  MT_FN void product_of_groups(T* q, const T* in, long long begin, unsigned columns,
                               unsigned groups) const {
    const unsigned packs = columns / V, work = (unsigned)n.pixels() * packs;
    const unsigned i = threadIdx.x % work, group = threadIdx.x / work;
    const int accesses = (int)(n.units + kInFlight * groups - 1) / (int)(kInFlight * groups);
    const int of_group = accesses * kInFlight;
    if (group < groups) {
      const int first = (int)group * of_group, last = first + of_group;
      T sums[V] = {};
      add_product(sums, in, i / packs, begin + i % packs * V, first,
                  last < n.units ? last : (int)n.units);
      set_pack(parts + threadIdx.x * V, sums);
    }
    __syncthreads();
    for (unsigned e = threadIdx.x; e < work * V; e += kThreads) {
      T sum = parts[e];
      for (unsigned g = 1; g < groups; ++g)
        sum += parts[g * work * V + e];
      q[e / columns * n.columns() + begin + e % columns] = sum;
    }
  }
  MT_FN void product(T* q, const T* in, long long begin, long long columns) const {
    const U packs = (U)columns / V, work = (U)n.pixels() * packs;
    // As many groups as there are threads for, and terms for the accesses in flight.
    const int most = (int)(n.units / kInFlight), fit = (int)(kThreads / work);
    const int groups = fit < most ? fit : most;
    __syncthreads();
    if (groups > 1) {
      product_of_groups(q, in, begin, (unsigned)columns, (unsigned)groups);
    } else {
      for (U i = threadIdx.x; i < work; i += kThreads) {
        const long long row = i / packs, column = begin + i % packs * V;
        T sums[V] = {};
        add_product(sums, in, row, column, 0, (int)n.units);
        set_pack(q + row * n.columns() + column, sums);
      }
    }
    __syncthreads();
  }

  // --- out += q R^T ---

  // Adds a lane's terms to the sums of outputs of a pixel, from unit `first` on.
  MT_FN void add_rows(T (&sums)[kOutputs], const T* q, long long row, int first, long long begin,
                      int columns, int lane, int lanes) const {
    for (int tap = 0; tap < n.taps(); ++tap) {
      const long long to = n.neighbour(row, tap, -1);
      if (to < 0)
        continue;
      const T* of_pixel = q + to * n.columns() + begin;
      const E* kernel = (const E*)arg[1] + (tap * n.units + first) * n.columns() + begin;
#pragma unroll 2
      for (int j = lane * V; j < columns; j += lanes * V) {
        Pack<E, V> k[kOutputs] = {};
#pragma unroll
        for (int r = 0; r < kOutputs; ++r) {
          if (n.units % kOutputs == 0 || first + r < n.units)
            k[r] = *(const Pack<E, V>*)(kernel + r * n.columns() + j);
        }
        const Pack<T, V> x = *(const Pack<T, V>*)(of_pixel + j);
#pragma unroll
        for (int v = 0; v < V; ++v) {
#pragma unroll
          for (int r = 0; r < kOutputs; ++r)
            sums[r] = fused<T>(x.v[v], get(k[r].v[v]), sums[r]);
        }
      }
    }
  }
  // Lanes that join their sums: a power of two, as many as there are accesses, at most a warp.
  static MT_FN constexpr int lanes_of(long long columns) {
    int lanes = 1;
    while (lanes < 32 && lanes * V < columns)
      lanes *= 2;
    return lanes;
  }
  MT_FN void add_transposed(T* out, const T* q, long long begin, long long columns) const {
    const int lanes = lanes_of(columns), lane = (int)threadIdx.x % lanes;
    constexpr U of_pixel = (n.units + kOutputs - 1) / kOutputs, chunks = (U)n.pixels() * of_pixel;
    __syncthreads();
    // All lanes of a warp take part in each round: they exchange sums.
    for (U chunk_of_warp = threadIdx.x / 32 * (32 / lanes); chunk_of_warp < chunks;
         chunk_of_warp += kThreads / lanes) {
      const U chunk = chunk_of_warp + threadIdx.x % 32 / lanes;
      const long long row = chunk / of_pixel;
      const int first = (int)(chunk % of_pixel) * kOutputs;
      T sums[kOutputs] = {};
      if (chunk < chunks)
        add_rows(sums, q, row, first, begin, (int)columns, lane, lanes);
      for (int bit = lanes / 2; bit > 0; bit /= 2) {
#pragma unroll
        for (int r = 0; r < kOutputs; ++r)
          sums[r] += other_lane(sums[r], (unsigned)bit);
      }
#pragma unroll
      for (int r = 0; r < kOutputs; ++r) {
        if (lane == r % lanes && chunk < chunks && first + r < n.units)
          out[row * n.units + first + r] += sums[r];
      }
    }
    __syncthreads();
  }
};

template <RnnSizes N, class E, RnnBlock B>
MT_FN void scan_rnn(const unsigned long long* arg, unsigned block, unsigned char* shared) {
  using T = Compute<E>;
  const RnnSizes n = N;
  T* const parts = (T*)shared;
  T* const scratch =
      B.in_shared ? parts + kThreads * B.pack : (T*)arg[14] + block * n.pixels() * n.scratch();
  const RnnScratch<T> at(scratch, n.pixels(), n);
  const RnnItem<N, E, B.pack> rows{arg, block, parts};
  if constexpr (B.is_gradient)
    rnn_gradient<T>(n, rows, at);
  else
    rnn_forward<T>(n, rows, at);
}

}  // namespace
}  // namespace mt
