// Recurrent cells over all steps, and their gradient (formulas/rnn.h). A block computes a batch
// item, one step after the other; its threads share pixels and units. Sums have one order.
#pragma once

#include "backend/formulas/rnn.h"
#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

// A batch item; its rows are its pixels. Arguments: x, kernel, h0, c0, bias, mask, h, c, dh, dc,
// dx, dh0, dc0, extra, scratch, drop, gates; 0 where a cell has none.
template <class E>
struct RnnItem {
  using T = Compute<E>;
  const RnnSizes& n;
  const unsigned long long* arg;
  long long item;

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
    for (long long i = threadIdx.x; i < n.pixels() * columns; i += kThreads)
      f(i / columns, i % columns);
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

  MT_FN void product(T* q, const T* in, long long begin, long long columns) const {
    __syncthreads();
    share(columns, [&](long long row, long long j) {
      T sum = 0;
      for (long long tap = 0; tap < n.taps(); ++tap) {
        const long long from = n.neighbour(row, tap, 1);
        for (long long i = 0; from >= 0 && i < n.units; ++i)
          sum += in[from * n.units + i] * get_at(1, (tap * n.units + i) * n.columns() + begin + j);
      }
      q[row * n.columns() + begin + j] = sum;
    });
    __syncthreads();
  }
  MT_FN void add_transposed(T* out, const T* q, long long begin, long long columns) const {
    __syncthreads();
    share(n.units, [&](long long row, long long i) {
      T sum = 0;
      for (long long tap = 0; tap < n.taps(); ++tap) {
        const long long to = n.neighbour(row, tap, -1);
        for (long long j = begin; to >= 0 && j < begin + columns; ++j)
          sum += q[to * n.columns() + j] * get_at(1, (tap * n.units + i) * n.columns() + j);
      }
      out[row * n.units + i] += sum;
    });
    __syncthreads();
  }
};

template <RnnSizes N, class E, bool is_gradient>
MT_FN void scan_rnn(const unsigned long long* arg, unsigned block) {
  using T = Compute<E>;
  const RnnSizes n = N;
  const RnnScratch<T> at((T*)arg[14] + block * n.pixels() * n.scratch(), n.pixels(), n);
  const RnnItem<E> rows{n, arg, block};
  if constexpr (is_gradient)
    rnn_gradient<T>(n, rows, at);
  else
    rnn_forward<T>(n, rows, at);
}

}  // namespace
}  // namespace mt
