// Recurrent cells over all steps, and their gradient (formulas/rnn.h). A thread computes a batch
// item, one step after the other; sums have one order.
#pragma once

#include "backend/formulas/rnn.h"
#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

// A batch item. Arguments: x, kernel, h0, c0, bias, mask, h, c, dh, dc, dx, dh0, dc0, extra,
// scratch, drop, gates; 0 where a cell has none.
template <class E>
struct RnnItem {
  using T = Compute<E>;
  const RnnSizes& n;
  const unsigned long long* arg;
  long long item;
  static constexpr long long count = 1;

  MT_FN T get_at(int array, long long i) const { return load((const E*)arg[array] + i); }
  MT_FN void set_at(int array, long long i, T v) const { store((E*)arg[array] + i, v); }
  MT_FN long long at(long long t, long long j, long long size) const {
    return (item * n.steps + t) * size + j;
  }

  MT_FN T x(long long, long long t, long long j) const { return get_at(0, at(t, j, n.columns())); }
  MT_FN T h0(long long, long long j) const { return get_at(2, item * n.units + j); }
  MT_FN T c0(long long, long long j) const { return get_at(3, item * n.units + j); }
  MT_FN T bias(long long j) const { return get_at(4, j); }
  MT_FN T drop(long long, long long j) const { return get_at(15, item * n.columns() + j); }
  MT_FN bool valid(long long, long long t) const {
    return !n.has_mask || ((const unsigned char*)arg[5])[item * n.steps + t] != 0;
  }
  MT_FN T h(long long, long long t, long long j) const { return get_at(6, at(t, j, n.units)); }
  MT_FN T c(long long, long long t, long long j) const { return get_at(7, at(t, j, n.units)); }
  MT_FN T dh(long long, long long t, long long j) const { return get_at(8, at(t, j, n.units)); }
  MT_FN T dc(long long, long long t, long long j) const { return get_at(9, at(t, j, n.units)); }
  MT_FN void set_h(long long, long long t, long long j, T v) const {
    set_at(6, at(t, j, n.units), v);
  }
  MT_FN void set_c(long long, long long t, long long j, T v) const {
    set_at(7, at(t, j, n.units), v);
  }
  MT_FN T gate(long long, long long t, long long j) const {
    return get_at(16, at(t, j, n.gate_columns()));
  }
  MT_FN void set_gate(long long, long long t, long long j, T v) const {
    set_at(16, at(t, j, n.gate_columns()), v);
  }
  MT_FN void set_dx(long long, long long t, long long j, T v) const {
    set_at(10, at(t, j, n.columns()), v);
  }
  MT_FN void set_dh0(long long, long long j, T v) const { set_at(11, item * n.units + j, v); }
  MT_FN void set_dc0(long long, long long j, T v) const { set_at(12, item * n.units + j, v); }
  MT_FN void set_extra(long long, long long t, long long j, T v) const {
    set_at(13, at(t, j, n.extra_columns()), v);
  }

  MT_FN void product(T* q, const T* in, long long begin, long long columns) const {
    for (long long j = begin; j < begin + columns; ++j) {
      T sum = 0;
      for (long long i = 0; i < n.units; ++i)
        sum += in[i] * get_at(1, i * n.columns() + j);
      q[j] = sum;
    }
  }
  MT_FN void add_transposed(T* out, const T* q, long long begin, long long columns) const {
    for (long long i = 0; i < n.units; ++i) {
      T sum = 0;
      for (long long j = begin; j < begin + columns; ++j)
        sum += q[j] * get_at(1, i * n.columns() + j);
      out[i] += sum;
    }
  }
};

template <RnnSizes N, class E, bool is_gradient>
MT_FN void scan_rnn(const unsigned long long* arg, unsigned block) {
  using T = Compute<E>;
  const RnnSizes n = N;
  const long long item = (long long)block * kThreads + threadIdx.x;
  if (item >= n.batch)
    return;
  const RnnScratch<T> at((T*)arg[14] + item * n.scratch(), 1, n);
  const RnnItem<E> rows{n, arg, item};
  if constexpr (is_gradient)
    rnn_gradient<T>(n, rows, at);
  else
    rnn_forward<T>(n, rows, at);
}

}  // namespace
}  // namespace mt
