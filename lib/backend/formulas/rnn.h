// Recurrent cells over time (formulas: ir/ops/rnn.cc): what the CPU's blocks of rows and a thread
// of a GPU have in common. `Rows` gives the elements of some batch items and the two products with
// the recurrent kernel. `Sizes` is RnnSizes, or knows cell and activations when it is compiled:
// then loops over units become vectors.
#pragma once

#include "backend/formulas/rnn_activation.h"
#include "base/device_function.h"

#if defined(MESHTRAIN_ISA)
#define MT_UNITS_LOOP _Pragma("omp simd")
#else
#define MT_UNITS_LOOP
#endif

namespace mt {
namespace {

// As meshtrain::RnnCell.
enum class RnnCell : unsigned char { kSimple, kLstm, kGru, kGruResetAfter };
struct RnnSizes {
  RnnCell cell;
  RnnActivation activation, recurrent;  // of the new content, of the gates
  long long batch, steps, units;
  bool has_mask, has_drop, keeps_gates;

  MT_FN constexpr long long gates() const {
    return cell == RnnCell::kSimple ? 1 : cell == RnnCell::kLstm ? 4 : 3;
  }
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
};

// Scratch of some rows: h, c, s and d (rows, units), q (rows, columns). Of the gradient h is the
// state before (of LSTM c), c and d are cotangents.
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
  for (long long row = 0; row < rows.count; ++row) {
    for (long long j = 0; j < n.units; ++j)
      out[row * n.units + j] = h[row * n.units + j] * rows.drop(row, gate * n.units + j);
  }
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
    for (long long i = 0; i < rows.count * u; ++i)
      at.s[i] = T(0);
    rows.add_transposed(at.s, at.q, gate * u, u);
    for (long long row = 0; row < rows.count; ++row) {
      for (long long j = 0; j < u; ++j)
        at.d[row * u + j] += at.s[row * u + j] * rows.drop(row, gate * u + j);
    }
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
  for (long long row = 0; row < rows.count; ++row) {
    const T* q = at.q + row * columns + u;
    MT_UNITS_LOOP
    for (long long j = 0; j < u; ++j) {
      const T r = rnn_activate(n.recurrent, rows.x(row, t, u + j) + q[j]);
      at.s[row * u + j] = r * h[row * u + j];
    }
  }
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

// The next state of one row, from its products q.
template <class T, class Sizes, class Rows>
MT_FN void rnn_row_step(const Sizes& n, const Rows& rows, const RnnScratch<T>& at, long long row,
                        long long t) {
  const long long u = n.units;
  T *h = at.h + row * u, *c = at.c + row * u;
  const T* q = at.q + row * n.columns();
  if (n.cell == RnnCell::kSimple) {
    MT_UNITS_LOOP
    for (long long j = 0; j < u; ++j)
      h[j] = rnn_activate(n.activation, rows.x(row, t, j) + q[j]);
  } else if (n.cell == RnnCell::kLstm) {
    MT_UNITS_LOOP
    for (long long j = 0; j < u; ++j) {
      const T i = rnn_activate(n.recurrent, rows.x(row, t, j) + q[j]);
      const T f = rnn_activate(n.recurrent, rows.x(row, t, u + j) + q[u + j]);
      const T g = rnn_activate(n.activation, rows.x(row, t, 2 * u + j) + q[2 * u + j]);
      const T o = rnn_activate(n.recurrent, rows.x(row, t, 3 * u + j) + q[3 * u + j]);
      c[j] = f * c[j] + i * g;
      h[j] = o * rnn_activate(n.activation, c[j]);
      rnn_keep<T>(n, rows, row, t, j, i, f, g, o);
    }
  } else {
    MT_UNITS_LOOP
    for (long long j = 0; j < u; ++j) {
      const T z = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, j, q[j]));
      const T r = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, u + j, q[u + j]));
      const bool is_reset = n.cell == RnnCell::kGru;  // R has multiplied r h
      const T p = is_reset ? q[2 * u + j] : q[2 * u + j] + rows.bias(2 * u + j);
      const T g = rnn_activate(n.activation, rows.x(row, t, 2 * u + j) + (is_reset ? p : r * p));
      h[j] = z * h[j] + (T(1) - z) * g;
      rnn_keep<T>(n, rows, row, t, j, z, r, g, p);
    }
  }
}

template <class T, class Sizes, class Rows>
MT_FN void rnn_forward(const Sizes& n, const Rows& rows, const RnnScratch<T>& at) {
  const long long u = n.units;
  const bool is_lstm = n.cell == RnnCell::kLstm;
  for (long long row = 0; row < rows.count; ++row) {
    for (long long j = 0; j < u; ++j) {
      at.h[row * u + j] = rows.h0(row, j);
      if (is_lstm)
        at.c[row * u + j] = rows.c0(row, j);
    }
  }
  for (long long t = 0; t < n.steps; ++t) {
    rnn_products<T>(n, rows, at, at.h, t);
    for (long long row = 0; row < rows.count; ++row) {
      if (rows.valid(row, t)) {
        rnn_row_step<T>(n, rows, at, row, t);
      } else if (n.keeps_gates) {
        for (long long j = 0; j < n.gate_columns(); ++j)
          rows.set_gate(row, t, j, T(0));
      }
      MT_UNITS_LOOP
      for (long long j = 0; j < u; ++j)
        rows.set_h(row, t, j, at.h[row * u + j]);
      if (!is_lstm)
        continue;
      MT_UNITS_LOOP
      for (long long j = 0; j < u; ++j)
        rows.set_c(row, t, j, at.c[row * u + j]);
    }
  }
}

// --- the gradient of a step: q becomes the cotangents of what R was multiplied into, d those of h
// and c those of the state c; from the gates of the step ---

template <class T, class Sizes, class Rows>
MT_FN void simple_row_gradient(const Sizes& n, const Rows& rows, T* d, T* q, long long row,
                               long long t) {
  MT_UNITS_LOOP
  for (long long j = 0; j < n.units; ++j) {
    q[j] = d[j] * rnn_slope(n.activation, rows.gate(row, t, j));
    rows.set_dx(row, t, j, q[j]);
    d[j] = T(0);
  }
}

// `before`: the state c of the step before.
template <class T, class Sizes, class Rows>
MT_FN void lstm_row_gradient(const Sizes& n, const Rows& rows, const T* before, T* d, T* c, T* q,
                             long long row, long long t) {
  const long long u = n.units;
  MT_UNITS_LOOP
  for (long long j = 0; j < u; ++j) {
    const T i = rows.gate(row, t, j), f = rows.gate(row, t, u + j);
    const T g = rows.gate(row, t, 2 * u + j), o = rows.gate(row, t, 3 * u + j);
    const T y = rnn_activate(n.activation, rows.c(row, t, j));
    const T dc = c[j] + d[j] * o * rnn_slope(n.activation, y);
    q[j] = dc * g * rnn_slope(n.recurrent, i);
    q[u + j] = dc * before[j] * rnn_slope(n.recurrent, f);
    q[2 * u + j] = dc * i * rnn_slope(n.activation, g);
    q[3 * u + j] = d[j] * y * rnn_slope(n.recurrent, o);
    rows.set_dx(row, t, j, q[j]);
    rows.set_dx(row, t, u + j, q[u + j]);
    rows.set_dx(row, t, 2 * u + j, q[2 * u + j]);
    rows.set_dx(row, t, 3 * u + j, q[3 * u + j]);
    c[j] = dc * f;
    d[j] = T(0);
  }
}

// `h`: the state before. Without reset_after the cotangent of r follows (rnn_reset_gradient).
template <class T, class Sizes, class Rows>
MT_FN void gru_row_gradient(const Sizes& n, const Rows& rows, const T* h, T* d, T* q, long long row,
                            long long t) {
  const long long u = n.units;
  MT_UNITS_LOOP
  for (long long j = 0; j < u; ++j) {
    const T z = rows.gate(row, t, j), r = rows.gate(row, t, u + j),
            g = rows.gate(row, t, 2 * u + j);
    const T dg = d[j] * (T(1) - z) * rnn_slope(n.activation, g);
    q[j] = d[j] * (h[j] - g) * rnn_slope(n.recurrent, z);
    rows.set_dx(row, t, j, q[j]);
    rows.set_dx(row, t, 2 * u + j, dg);
    d[j] *= z;
    if (n.cell == RnnCell::kGruResetAfter) {
      q[u + j] = dg * rows.gate(row, t, 3 * u + j) * rnn_slope(n.recurrent, r);
      q[2 * u + j] = dg * r;
      rows.set_dx(row, t, u + j, q[u + j]);
      rows.set_extra(row, t, j, q[j]);
      rows.set_extra(row, t, u + j, q[u + j]);
      rows.set_extra(row, t, 2 * u + j, q[2 * u + j]);
    } else {
      rows.set_extra(row, t, j, n.has_drop ? r * h[j] * rows.drop(row, 2 * u + j) : r * h[j]);
      q[2 * u + j] = dg;
    }
  }
}

// The states before step t: h, or c where `of_c`.
template <class T, class Sizes, class Rows>
MT_FN void rnn_load_before(const Sizes& n, const Rows& rows, T* out, bool of_c, long long row,
                           long long t) {
  for (long long j = 0; j < n.units; ++j) {
    if (of_c)
      out[j] = t > 0 ? rows.c(row, t - 1, j) : rows.c0(row, j);
    else
      out[j] = t > 0 ? rows.h(row, t - 1, j) : rows.h0(row, j);
  }
}

template <class T, class Sizes, class Rows>
MT_FN void rnn_row_gradient(const Sizes& n, const Rows& rows, const RnnScratch<T>& at,
                            long long row, long long t) {
  const long long u = n.units;
  T *d = at.d + row * u, *q = at.q + row * n.columns(), *before = at.h + row * u;
  for (long long j = 0; j < u; ++j)
    d[j] += rows.dh(row, t, j);
  if (n.cell == RnnCell::kSimple) {
    simple_row_gradient<T>(n, rows, d, q, row, t);
    return;
  }
  T* const c = at.c + row * u;
  const bool is_lstm = n.cell == RnnCell::kLstm;
  rnn_load_before<T>(n, rows, before, is_lstm, row, t);
  if (!is_lstm) {
    gru_row_gradient<T>(n, rows, before, d, q, row, t);
    return;
  }
  for (long long j = 0; j < u; ++j)
    c[j] += rows.dc(row, t, j);
  lstm_row_gradient<T>(n, rows, before, d, c, q, row, t);
}

// A step that a mask leaves out: cotangents of states pass.
template <class T, class Sizes, class Rows>
MT_FN void rnn_skip_row(const Sizes& n, const Rows& rows, const RnnScratch<T>& at, long long row,
                        long long t) {
  const long long u = n.units;
  for (long long j = 0; j < u; ++j)
    at.d[row * u + j] += rows.dh(row, t, j);
  for (long long j = 0; n.cell == RnnCell::kLstm && j < u; ++j)
    at.c[row * u + j] += rows.dc(row, t, j);
  for (long long j = 0; j < n.columns(); ++j) {
    at.q[row * n.columns() + j] = T(0);
    rows.set_dx(row, t, j, T(0));
  }
  for (long long j = 0; n.is_gru() && j < n.extra_columns(); ++j)
    rows.set_extra(row, t, j, T(0));
}

// GRU without reset_after: the cotangent of r h gives those of r and of h.
template <class T, class Sizes, class Rows>
MT_FN void rnn_reset_gradient(const Sizes& n, const Rows& rows, const RnnScratch<T>& at,
                              long long t) {
  const long long u = n.units, columns = n.columns();
  for (long long i = 0; i < rows.count * u; ++i)
    at.s[i] = T(0);
  rows.add_transposed(at.s, at.q, 2 * u, u);
  if (n.has_drop)
    rnn_drop(n, rows, at.s, at.s, 2);
  for (long long row = 0; row < rows.count; ++row) {
    if (!rows.valid(row, t))
      continue;
    T* q = at.q + row * columns + u;
    MT_UNITS_LOOP
    for (long long j = 0; j < u; ++j) {
      const T r = rows.gate(row, t, u + j), ds = at.s[row * u + j];
      q[j] = ds * at.h[row * u + j] * rnn_slope(n.recurrent, r);
      rows.set_dx(row, t, u + j, q[j]);
      at.d[row * u + j] += ds * r;
    }
  }
}

template <class T, class Sizes, class Rows>
MT_FN void rnn_gradient(const Sizes& n, const Rows& rows, const RnnScratch<T>& at) {
  const long long u = n.units;
  for (long long i = 0; i < rows.count * u; ++i)
    at.d[i] = at.c[i] = T(0);
  for (long long t = n.steps - 1; t >= 0; --t) {
    for (long long row = 0; row < rows.count; ++row) {
      if (rows.valid(row, t))
        rnn_row_gradient<T>(n, rows, at, row, t);
      else
        rnn_skip_row<T>(n, rows, at, row, t);
    }
    if (n.cell == RnnCell::kGru)
      rnn_reset_gradient<T>(n, rows, at, t);
    rnn_add_transposed(n, rows, at, n.cell == RnnCell::kGru ? 2 : n.gates());
  }
  for (long long row = 0; row < rows.count; ++row) {
    for (long long j = 0; j < u; ++j) {
      rows.set_dh0(row, j, at.d[row * u + j]);
      if (n.cell == RnnCell::kLstm)
        rows.set_dc0(row, j, at.c[row * u + j]);
    }
  }
}

}  // namespace
}  // namespace mt
