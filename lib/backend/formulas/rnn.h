// Recurrent cells over time (formulas: ir/ops/rnn.cc): what the CPU's blocks of rows and a block of
// a GPU have in common. A row is a batch item, or a pixel of one. `Rows` gives the elements of some
// rows and the two products with the recurrent kernel; each() goes over the units of all rows, on a
// GPU each thread over its own. Only products read what other threads wrote, and wait for them.
#pragma once

#include "backend/formulas/elementwise.h"
#include "base/device_function.h"

namespace mt {
namespace {

// As meshtrain::RnnCell and meshtrain::RnnActivation.
enum class RnnCell : unsigned char { kSimple, kLstm, kGru, kGruResetAfter };
enum class RnnActivation : unsigned char {
  kTanh,
  kSigmoid,
  kRelu,
  kLinear,
  kHardSigmoid,
  kRelu6,
  kSoftplus,
  kSoftsign,
  kElu,
  kSelu,
  kLeakyRelu,
  kExponential,
  kHardTanh,
};

constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;
constexpr double kLeakySlope = 0.2;  // of Keras' activation

struct RnnSizes {
  RnnCell cell;
  RnnActivation activation, recurrent;  // of the new content, of the gates
  long long batch, steps, units;
  bool has_mask, has_drop;
  long long space[3], window[3];  // of the recurrent convolution; 1: there is no such dimension

  MT_FN constexpr long long pixels() const { return space[0] * space[1] * space[2]; }
  MT_FN constexpr long long taps() const { return window[0] * window[1] * window[2]; }
  MT_FN constexpr long long gates() const {
    return cell == RnnCell::kSimple ? 1 : cell == RnnCell::kLstm ? 4 : 3;
  }
  MT_FN constexpr long long columns() const { return gates() * units; }
  MT_FN constexpr bool is_gru() const {
    return cell == RnnCell::kGru || cell == RnnCell::kGruResetAfter;
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

template <class T>
MT_FN T rnn_activate(RnnActivation f, T x) {
  switch (f) {
    case RnnActivation::kTanh:
      return tanh(x);
    case RnnActivation::kSigmoid:
      return sigmoid(x);
    case RnnActivation::kRelu:
      return x > T(0) ? x : T(0);
    case RnnActivation::kHardSigmoid:
      return clamp(x + T(3), T(0), T(6)) / T(6);
    case RnnActivation::kRelu6:
      return clamp(x, T(0), T(6));
    case RnnActivation::kSoftplus:
      return softplus(x);
    case RnnActivation::kSoftsign:
      return x / (T(1) + abs(x));
    case RnnActivation::kElu:
      return x > T(0) ? x : expm1(x);
    case RnnActivation::kSelu:
      return T(kSeluScale) * (x > T(0) ? x : T(kSeluAlpha) * expm1(x));
    case RnnActivation::kLeakyRelu:
      return x > T(0) ? x : T(kLeakySlope) * x;
    case RnnActivation::kExponential:
      return exp(x);
    case RnnActivation::kHardTanh:
      return clamp(x, T(-1), T(1));
    default:
      return x;
  }
}
// The derivative where the activation is y.
template <class T>
MT_FN T rnn_slope(RnnActivation f, T y) {
  switch (f) {
    case RnnActivation::kTanh:
      return T(1) - y * y;
    case RnnActivation::kSigmoid:
      return y * (T(1) - y);
    case RnnActivation::kRelu:
      return y > T(0) ? T(1) : T(0);
    case RnnActivation::kHardSigmoid:
      return y > T(0) && y < T(1) ? T(1) / T(6) : T(0);
    case RnnActivation::kRelu6:
      return y > T(0) && y < T(6) ? T(1) : T(0);
    case RnnActivation::kSoftplus:
      return -expm1(-y);
    case RnnActivation::kSoftsign:
      return square(T(1) - abs(y));
    case RnnActivation::kElu:
      return y > T(0) ? T(1) : y + T(1);
    case RnnActivation::kSelu:
      return y > T(0) ? T(kSeluScale) : y + T(kSeluScale * kSeluAlpha);
    case RnnActivation::kLeakyRelu:
      return y > T(0) ? T(1) : T(kLeakySlope);
    case RnnActivation::kExponential:
      return y;
    case RnnActivation::kHardTanh:
      return y > T(-1) && y < T(1) ? T(1) : T(0);
    default:
      return T(1);
  }
}

// Scratch of some rows: h, c and s (rows, units), d (rows, units), q (rows, columns).
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
template <class T, class Rows>
MT_FN void rnn_drop(const RnnSizes& n, const Rows& rows, T* out, const T* h, long long gate) {
  rows.each([&](long long row, long long j) {
    out[row * n.units + j] = h[row * n.units + j] * rows.drop(row, gate * n.units + j);
  });
}

// Products of the first `gates` gates: q = h R.
template <class T, class Rows>
MT_FN void rnn_gate_products(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at,
                             const T* h, long long gates) {
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
template <class T, class Rows>
MT_FN void rnn_add_transposed(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at,
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
template <class T, class Rows>
MT_FN void rnn_products(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at, const T* h,
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

// What the content of a GRU is made of before its activation.
template <class T, class Rows>
MT_FN T gru_content(const RnnSizes& n, const Rows& rows, long long row, long long t, long long j,
                    T r, T product) {
  const T x = rows.x(row, t, 2 * n.units + j);
  return n.cell == RnnCell::kGru ? x + product : x + r * (product + rows.bias(2 * n.units + j));
}
// A gate of a GRU before its activation; `gate`: 0 z, 1 r.
template <class T, class Rows>
MT_FN T gru_gate(const RnnSizes& n, const Rows& rows, long long row, long long t, long long column,
                 T product) {
  const T sum = rows.x(row, t, column) + product;
  return n.cell == RnnCell::kGru ? sum : sum + rows.bias(column);
}

// The state of unit j of a valid row after step t, from h and c before it.
template <class T, class Rows>
MT_FN void rnn_unit_step(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at,
                         long long row, long long j, long long t) {
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
  } else {
    const T z = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, j, q[j]));
    const T r = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, u + j, q[u + j]));
    const T g = rnn_activate(n.activation, gru_content<T>(n, rows, row, t, j, r, q[2 * u + j]));
    h = z * h + (T(1) - z) * g;
  }
}

template <class T, class Rows>
MT_FN void rnn_forward(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at) {
  const long long u = n.units;
  rows.each([&](long long row, long long j) {
    at.h[row * u + j] = rows.h0(row, j);
    if (n.cell == RnnCell::kLstm)
      at.c[row * u + j] = rows.c0(row, j);
  });
  for (long long t = 0; t < n.steps; ++t) {
    rnn_products<T>(n, rows, at, at.h, t);
    rows.each([&](long long row, long long j) {
      if (rows.valid(row, t))
        rnn_unit_step<T>(n, rows, at, row, j, t);
      rows.set_h(row, t, j, at.h[row * u + j]);
      if (n.cell == RnnCell::kLstm)
        rows.set_c(row, t, j, at.c[row * u + j]);
    });
  }
}

// Unit j of a valid row at step t of the gradient: q becomes the cotangents of what R was
// multiplied into, d those of h and c those of the state c.
template <class T, class Rows>
MT_FN void rnn_unit_gradient(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at,
                             long long row, long long j, long long t) {
  const long long u = n.units;
  const T h = at.h[row * u + j];
  T &d = at.d[row * u + j], &c = at.c[row * u + j];
  T* q = at.q + row * n.columns();
  if (n.cell == RnnCell::kSimple) {
    q[j] = d * rnn_slope(n.activation, rnn_activate(n.activation, rows.x(row, t, j) + q[j]));
    rows.set_dx(row, t, j, q[j]);
    d = T(0);
  } else if (n.cell == RnnCell::kLstm) {
    const T i = rnn_activate(n.recurrent, rows.x(row, t, j) + q[j]);
    const T f = rnn_activate(n.recurrent, rows.x(row, t, u + j) + q[u + j]);
    const T g = rnn_activate(n.activation, rows.x(row, t, 2 * u + j) + q[2 * u + j]);
    const T o = rnn_activate(n.recurrent, rows.x(row, t, 3 * u + j) + q[3 * u + j]);
    const T before = t > 0 ? rows.c(row, t - 1, j) : rows.c0(row, j);
    const T y = rnn_activate(n.activation, f * before + i * g);
    const T dc = c + d * o * rnn_slope(n.activation, y);
    q[j] = dc * g * rnn_slope(n.recurrent, i);
    q[u + j] = dc * before * rnn_slope(n.recurrent, f);
    q[2 * u + j] = dc * i * rnn_slope(n.activation, g);
    q[3 * u + j] = d * y * rnn_slope(n.recurrent, o);
    for (long long gate = 0; gate < 4; ++gate)
      rows.set_dx(row, t, gate * u + j, q[gate * u + j]);
    c = dc * f;
    d = T(0);
  } else {
    const T z = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, j, q[j]));
    const T r = rnn_activate(n.recurrent, gru_gate<T>(n, rows, row, t, u + j, q[u + j]));
    const T product = q[2 * u + j];
    const T g = rnn_activate(n.activation, gru_content<T>(n, rows, row, t, j, r, product));
    const T dg = d * (T(1) - z) * rnn_slope(n.activation, g);
    q[j] = d * (h - g) * rnn_slope(n.recurrent, z);
    rows.set_dx(row, t, j, q[j]);
    rows.set_dx(row, t, 2 * u + j, dg);
    d *= z;
    if (n.cell == RnnCell::kGruResetAfter) {
      q[u + j] = dg * (product + rows.bias(2 * u + j)) * rnn_slope(n.recurrent, r);
      q[2 * u + j] = dg * r;
      rows.set_dx(row, t, u + j, q[u + j]);
      for (long long gate = 0; gate < 3; ++gate)
        rows.set_extra(row, t, gate * u + j, q[gate * u + j]);
    } else {
      rows.set_extra(row, t, j, n.has_drop ? r * h * rows.drop(row, 2 * u + j) : r * h);
      q[u + j] = r;  // until the cotangent of r h is known
      q[2 * u + j] = dg;
    }
  }
}

// The extra result of unit j at a step that a mask leaves out, and its cotangents.
template <class T, class Rows>
MT_FN void rnn_skip_unit(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at,
                         long long row, long long j, long long t) {
  for (long long gate = 0; gate < n.gates(); ++gate) {
    const long long column = gate * n.units + j;
    at.q[row * n.columns() + column] = T(0);
    rows.set_dx(row, t, column, T(0));
    if (n.cell == RnnCell::kGruResetAfter || (n.cell == RnnCell::kGru && gate == 0))
      rows.set_extra(row, t, column, T(0));
  }
}

// GRU without reset_after: the cotangent of r h gives those of r and of h.
template <class T, class Rows>
MT_FN void rnn_reset_gradient(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at,
                              long long t) {
  const long long u = n.units, columns = n.columns();
  rows.each([&](long long row, long long j) { at.s[row * u + j] = T(0); });
  rows.add_transposed(at.s, at.q, 2 * u, u);
  if (n.has_drop)
    rnn_drop(n, rows, at.s, at.s, 2);
  rows.each([&](long long row, long long j) {
    if (!rows.valid(row, t))
      return;
    T* q = at.q + row * columns;
    const T r = q[u + j], ds = at.s[row * u + j];
    q[u + j] = ds * at.h[row * u + j] * rnn_slope(n.recurrent, r);
    rows.set_dx(row, t, u + j, q[u + j]);
    at.d[row * u + j] += ds * r;
  });
}

template <class T, class Rows>
MT_FN void rnn_gradient(const RnnSizes& n, const Rows& rows, const RnnScratch<T>& at) {
  const long long u = n.units;
  rows.each([&](long long row, long long j) { at.d[row * u + j] = at.c[row * u + j] = T(0); });
  for (long long t = n.steps - 1; t >= 0; --t) {
    rows.each([&](long long row, long long j) {
      at.h[row * u + j] = t > 0 ? rows.h(row, t - 1, j) : rows.h0(row, j);
      at.d[row * u + j] += rows.dh(row, t, j);
      if (n.cell == RnnCell::kLstm)
        at.c[row * u + j] += rows.dc(row, t, j);
    });
    rnn_products<T>(n, rows, at, at.h, t);
    rows.each([&](long long row, long long j) {
      if (rows.valid(row, t))
        rnn_unit_gradient<T>(n, rows, at, row, j, t);
      else
        rnn_skip_unit<T>(n, rows, at, row, j, t);
    });
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
