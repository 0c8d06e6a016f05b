// Recurrent cells over time (formulas: ir/ops/rnn.cc): what the CPU's blocks of rows and a block of
// a GPU have in common. A row is a batch item, or a pixel of one. `Rows` gives the elements of some
// rows and the two products with the recurrent kernel; each() goes over the units of all rows,
// each_of() of those that the mask of a step keeps and of the others. On a GPU each thread goes
// over its own; only products read what other threads wrote, and wait for them. `Sizes` is
// RnnSizes, or knows cell and activations when it is compiled: then loops over units become
// vectors.
#pragma once

#include "backend/formulas/rnn_activation.h"
#include "base/device_function.h"

namespace mt {
namespace {

// As meshtrain::RnnCell.
enum class RnnCell : unsigned char { kSimple, kLstm, kGru, kGruResetAfter };

MT_FN constexpr long long rnn_gates(RnnCell cell) {
  return cell == RnnCell::kSimple ? 1 : cell == RnnCell::kLstm ? 4 : 3;
}

struct RnnSizes {
  RnnCell cell;
  RnnActivation activation, recurrent;  // of the new content, of the gates
  long long batch, steps, units;
  bool has_mask, has_drop, keeps_gates;
  long long space[3], window[3];  // of the recurrent convolution; 1: there is no such dimension

  MT_FN constexpr long long pixels() const { return space[0] * space[1] * space[2]; }
  MT_FN constexpr long long taps() const { return window[0] * window[1] * window[2]; }
  MT_FN constexpr long long gates() const { return rnn_gates(cell); }
  MT_FN constexpr long long columns() const { return gates() * units; }
  MT_FN constexpr bool is_gru() const {
    return cell == RnnCell::kGru || cell == RnnCell::kGruResetAfter;
  }
  // Of the gates that the gradient reads: those of the simple cell are h.
  MT_FN constexpr long long gate_columns() const {
    return cell == RnnCell::kGruResetAfter ? 4 * units : columns();
  }
  // What the kernel's gradient of a GRU without reset_after needs has a state's size.
  MT_FN constexpr long long extra_columns() const {
    return cell == RnnCell::kGru ? units : columns();
  }
  // Elements that a row needs beside its arrays: h, c (or its cotangent), products, a state.
  MT_FN constexpr long long scratch() const { return columns() + 4 * units; }
  // The pixel that lies where tap `tap` of the window is from `pixel` (sign 1), or the one from
  // which `pixel` lies there (-1); below 0: outside. As many outputs as inputs: padding "same".
  MT_FN constexpr long long neighbour(long long pixel, long long tap, int sign) const {
    long long out = 0, stride = 1;
    for (int d = 2; d >= 0; --d) {
      const long long at = pixel % space[d] + sign * (tap % window[d] - (window[d] - 1) / 2);
      if (at < 0 || at >= space[d])
        return -1;
      out += at * stride;
      stride *= space[d];
      pixel /= space[d];
      tap /= window[d];
    }
    return out;
  }
};

// Scratch of some rows: h, c, s and d (rows, units), q (rows, columns). Of the gradient h is
// the state before (of LSTM the state c), c and d are cotangents.
template <class T>
struct RnnScratch {
  T *h, *c, *s, *d, *q;
  MT_FN RnnScratch(T* at, long long rows, const RnnSizes& n)
      : h(at),
        c(h + rows * n.units),
        s(c + rows * n.units),
        d(s + rows * n.units),
        q(d + rows * n.units) {}
};

// The states h as gate `gate` sees them.
template <class T, class Sizes, class Rows>
MT_FN void rnn_drop(const Sizes& n, const Rows& rows, T* out, const T* h, long long gate) {
  rows.each([&](long long row, long long j) {
    out[row * n.units + j] = h[row * n.units + j] * rows.drop(row, gate * n.units + j);
  });
}

// Products of the first `gates` gates: q = h R.
template <class T, class Sizes, class Rows>
MT_FN void rnn_gate_products(const Sizes& n, const Rows& rows, const RnnScratch<T>& at, const T* h,
                             long long gates) {
  if (!n.has_drop) {
    rows.product(at.q, h, 0, gates * n.units);
    return;
  }
  for (long long gate = 0; gate < gates; ++gate) {
    rnn_drop(n, rows, at.s, h, gate);
    rows.product(at.q, at.s, gate * n.units, n.units);
  }
}

// The cotangents of the states from those of the first `gates` products.
template <class T, class Sizes, class Rows>
MT_FN void rnn_add_transposed(const Sizes& n, const Rows& rows, const RnnScratch<T>& at,
                              long long gates) {
  if (!n.has_drop) {
    rows.add_transposed(at.d, at.q, 0, gates * n.units);
    return;
  }
  const long long u = n.units;
  for (long long gate = 0; gate < gates; ++gate) {
    rows.each([&](long long row, long long j) { at.s[row * u + j] = T(0); });
    rows.add_transposed(at.s, at.q, gate * u, u);
    rows.each([&](long long row, long long j) {
      at.d[row * u + j] += at.s[row * u + j] * rows.drop(row, gate * u + j);
    });
  }
}

// Products with the recurrent kernel at one step: q = h R. GRU without reset_after multiplies the
// reset state: s = r h, and the last columns of q are s R.
template <class T, class Sizes, class Rows>
MT_FN void rnn_products(const Sizes& n, const Rows& rows, const RnnScratch<T>& at, const T* h,
                        long long t) {
  const long long u = n.units, columns = n.columns();
  if (n.cell != RnnCell::kGru) {
    rnn_gate_products(n, rows, at, h, n.gates());
    return;
  }
  rnn_gate_products(n, rows, at, h, 2);
  rows.each([&](long long row, long long j) {
    const T r = rnn_activate(n.recurrent, rows.x(row, t, u + j) + at.q[row * columns + u + j]);
    at.s[row * u + j] = r * h[row * u + j];
  });
  if (n.has_drop)
    rnn_drop(n, rows, at.s, at.s, 2);
  rows.product(at.q, at.s, 2 * u, u);
}

// A gate of a GRU before its activation; `column` of all gates.
template <class T, class Sizes, class Rows>
MT_FN T gru_gate(const Sizes& n, const Rows& rows, long long row, long long t, long long column,
                 T product) {
  const T sum = rows.x(row, t, column) + product;
  return n.cell == RnnCell::kGru ? sum : sum + rows.bias(column);
}

// What the gradient reads of a step.
template <class T, class Sizes, class Rows>
MT_FN void rnn_keep(const Sizes& n, const Rows& rows, long long row, long long t, long long j,
                    T first, T second, T third, T fourth) {
  if (!n.keeps_gates)
    return;
  rows.set_gate(row, t, j, first);
  rows.set_gate(row, t, n.units + j, second);
  rows.set_gate(row, t, 2 * n.units + j, third);
  if (n.cell != RnnCell::kGru)
    rows.set_gate(row, t, 3 * n.units + j, fourth);
}

template <class Sizes, class Rows, class T>
MT_FN void rnn_set_states(const Sizes& n, const Rows& rows, const RnnScratch<T>& at, long long row,
                          long long t, long long j) {
  rows.set_h(row, t, j, at.h[row * n.units + j]);
  if (n.cell == RnnCell::kLstm)
    rows.set_c(row, t, j, at.c[row * n.units + j]);
}

// Unit j of a valid row at step t: its state, from h and c before it and the products q.
template <class T, class Sizes, class Rows>
MT_FN void rnn_unit_step(const Sizes& n, const Rows& rows, const RnnScratch<T>& at, long long row,
                         long long t, long long j) {
  const long long u = n.units;
  T &h = at.h[row * u + j], &c = at.c[row * u + j];
  const T* q = at.q + row * n.columns();
  if (n.cell == RnnCell::kSimple) {
    h = rnn_activate(n.activation, rows.x(row, t, j) + q[j]);
  } else if (n.cell == RnnCell::kLstm) {
    const T i = rnn_activate(n.recurrent, rows.x(row, t, j) + q[j]);
    const T f = rnn_activate(n.recurrent, rows.x(row, t, u + j) + q[u + j]);
    const T g = rnn_activate(n.activation, rows.x(row, t, 2 * u + j) + q[2 * u + j]);
    const T o = rnn_activate(n.recurrent, rows.x(row, t, 3 * u + j) + q[3 * u + j]);
    c = f * c + i * g;
    h = o * rnn_activate(n.activation, c);
    rnn_keep<T>(n, rows, row, t, j, i, f, g, o);
  } else {
    const T z = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, j, q[j]));
    const T r = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, u + j, q[u + j]));
    const bool is_reset = n.cell == RnnCell::kGru;  // R has multiplied r h
    const T p = is_reset ? q[2 * u + j] : q[2 * u + j] + rows.bias(2 * u + j);
    const T g = rnn_activate(n.activation, rows.x(row, t, 2 * u + j) + (is_reset ? p : r * p));
    h = z * h + (T(1) - z) * g;
    rnn_keep<T>(n, rows, row, t, j, z, r, g, p);
  }
  rnn_set_states(n, rows, at, row, t, j);
}

template <class T, class Sizes, class Rows>
MT_FN void rnn_forward(const Sizes& n, const Rows& rows, const RnnScratch<T>& at) {
  const long long u = n.units;
  rows.each([&](long long row, long long j) {
    at.h[row * u + j] = rows.h0(row, j);
    if (n.cell == RnnCell::kLstm)
      at.c[row * u + j] = rows.c0(row, j);
  });
  for (long long t = 0; t < n.steps; ++t) {
    rnn_products<T>(n, rows, at, at.h, t);
    rows.each_of(
        t, [&](long long row, long long j) { rnn_unit_step<T>(n, rows, at, row, t, j); },
        [&](long long row, long long j) {
          if (n.cell != RnnCell::kSimple)
            rnn_keep<T>(n, rows, row, t, j, T(0), T(0), T(0), T(0));
          rnn_set_states(n, rows, at, row, t, j);
        });
  }
}

// --- the gradient of unit j of a valid row at step t, from the gates of the step: q becomes the
// cotangents of what R was multiplied into, d those of h and c those of the state c ---

template <class T, class Sizes, class Rows>
MT_FN void lstm_unit_gradient(const Sizes& n, const Rows& rows, T before, T& d, T& c, T* q,
                              long long row, long long t, long long j) {
  const long long u = n.units;
  const T i = rows.gate(row, t, j), f = rows.gate(row, t, u + j);
  const T g = rows.gate(row, t, 2 * u + j), o = rows.gate(row, t, 3 * u + j);
  const T y = rnn_activate(n.activation, rows.c(row, t, j));
  const T dc = c + d * o * rnn_slope(n.activation, y);
  q[j] = dc * g * rnn_slope(n.recurrent, i);
  q[u + j] = dc * before * rnn_slope(n.recurrent, f);
  q[2 * u + j] = dc * i * rnn_slope(n.activation, g);
  q[3 * u + j] = d * y * rnn_slope(n.recurrent, o);
  rows.set_dx(row, t, j, q[j]);
  rows.set_dx(row, t, u + j, q[u + j]);
  rows.set_dx(row, t, 2 * u + j, q[2 * u + j]);
  rows.set_dx(row, t, 3 * u + j, q[3 * u + j]);
  c = dc * f;
  d = T(0);
}

// Without reset_after the cotangent of r follows (rnn_reset_gradient).
template <class T, class Sizes, class Rows>
MT_FN void gru_unit_gradient(const Sizes& n, const Rows& rows, T h, T& d, T* q, long long row,
                             long long t, long long j) {
  const long long u = n.units;
  const T z = rows.gate(row, t, j), r = rows.gate(row, t, u + j), g = rows.gate(row, t, 2 * u + j);
  const T dg = d * (T(1) - z) * rnn_slope(n.activation, g);
  q[j] = d * (h - g) * rnn_slope(n.recurrent, z);
  rows.set_dx(row, t, j, q[j]);
  rows.set_dx(row, t, 2 * u + j, dg);
  d *= z;
  if (n.cell == RnnCell::kGruResetAfter) {
    q[u + j] = dg * rows.gate(row, t, 3 * u + j) * rnn_slope(n.recurrent, r);
    q[2 * u + j] = dg * r;
    rows.set_dx(row, t, u + j, q[u + j]);
    rows.set_extra(row, t, j, q[j]);
    rows.set_extra(row, t, u + j, q[u + j]);
    rows.set_extra(row, t, 2 * u + j, q[2 * u + j]);
  } else {
    rows.set_extra(row, t, j, n.has_drop ? r * h * rows.drop(row, 2 * u + j) : r * h);
    q[2 * u + j] = dg;
  }
}

template <class T, class Sizes, class Rows>
MT_FN void rnn_unit_gradient(const Sizes& n, const Rows& rows, const RnnScratch<T>& at,
                             long long row, long long t, long long j) {
  const long long at_unit = row * n.units + j;
  const T before = at.h[at_unit];
  T &d = at.d[at_unit], &c = at.c[at_unit];
  T* q = at.q + row * n.columns();
  d += rows.dh(row, t, j);
  if (n.cell == RnnCell::kSimple) {
    q[j] = d * rnn_slope(n.activation, rows.gate(row, t, j));
    rows.set_dx(row, t, j, q[j]);
    d = T(0);
  } else if (n.cell == RnnCell::kLstm) {
    c += rows.dc(row, t, j);
    lstm_unit_gradient<T>(n, rows, before, d, c, q, row, t, j);
  } else {
    gru_unit_gradient<T>(n, rows, before, d, q, row, t, j);
  }
}

// Unit j at a step that a mask leaves out: cotangents of states pass.
template <class T, class Sizes, class Rows>
MT_FN void rnn_skip_unit(const Sizes& n, const Rows& rows, const RnnScratch<T>& at, long long row,
                         long long t, long long j) {
  at.d[row * n.units + j] += rows.dh(row, t, j);
  if (n.cell == RnnCell::kLstm)
    at.c[row * n.units + j] += rows.dc(row, t, j);
  for (long long gate = 0; gate < n.gates(); ++gate) {
    const long long column = gate * n.units + j;
    at.q[row * n.columns() + column] = T(0);
    rows.set_dx(row, t, column, T(0));
    if (n.is_gru() && column < n.extra_columns())
      rows.set_extra(row, t, column, T(0));
  }
}

// GRU without reset_after: the cotangent of r h gives those of r and of h.
template <class T, class Sizes, class Rows>
MT_FN void rnn_reset_gradient(const Sizes& n, const Rows& rows, const RnnScratch<T>& at,
                              long long t) {
  const long long u = n.units, columns = n.columns();
  rows.each([&](long long row, long long j) { at.s[row * u + j] = T(0); });
  rows.add_transposed(at.s, at.q, 2 * u, u);
  if (n.has_drop)
    rnn_drop(n, rows, at.s, at.s, 2);
  rows.each_of(
      t,
      [&](long long row, long long j) {
        const T r = rows.gate(row, t, u + j), ds = at.s[row * u + j];
        T& q = at.q[row * columns + u + j];
        q = ds * at.h[row * u + j] * rnn_slope(n.recurrent, r);
        rows.set_dx(row, t, u + j, q);
        at.d[row * u + j] += ds * r;
      },
      [](long long, long long) {});
}

template <class T, class Sizes, class Rows>
MT_FN void rnn_gradient(const Sizes& n, const Rows& rows, const RnnScratch<T>& at) {
  const long long u = n.units;
  rows.each([&](long long row, long long j) { at.d[row * u + j] = at.c[row * u + j] = T(0); });
  for (long long t = n.steps - 1; t >= 0; --t) {
    rows.each([&](long long row, long long j) {
      if (n.cell == RnnCell::kLstm)
        at.h[row * u + j] = t > 0 ? rows.c(row, t - 1, j) : rows.c0(row, j);
      else if (n.cell != RnnCell::kSimple)
        at.h[row * u + j] = t > 0 ? rows.h(row, t - 1, j) : rows.h0(row, j);
    });
    rows.each_of(
        t, [&](long long row, long long j) { rnn_unit_gradient<T>(n, rows, at, row, t, j); },
        [&](long long row, long long j) { rnn_skip_unit<T>(n, rows, at, row, t, j); });
    if (n.cell == RnnCell::kGru)
      rnn_reset_gradient<T>(n, rows, at, t);
    rnn_add_transposed(n, rows, at, n.cell == RnnCell::kGru ? 2 : n.gates());
  }
  rows.each([&](long long row, long long j) {
    rows.set_dh0(row, j, at.d[row * u + j]);
    if (n.cell == RnnCell::kLstm)
      rows.set_dc0(row, j, at.c[row * u + j]);
  });
}

}  // namespace
}  // namespace mt
