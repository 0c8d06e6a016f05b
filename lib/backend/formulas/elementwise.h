// What each elementwise op computes (MESHTRAIN_ELEMENT_OPS of backend/rules.h), for every type.
//
// A NaN is never hidden by a maximum or a relu, as in JAX. Whole numbers wrap; x / 0 has all bits
// set, as in XLA; round takes halves to even. A bool is an unsigned char that is 0 or 1.
#pragma once

#include "backend/formulas/math.h"
#include "base/device_function.h"

namespace mt {
namespace {

// Unsigned types in which whole numbers wrap instead of being undefined.
template <class T>
struct WrapType {
  using type = T;
};
template <>
struct WrapType<int> {
  using type = unsigned;
};
template <>
struct WrapType<long> {
  using type = unsigned long;
};
template <>
struct WrapType<long long> {
  using type = unsigned long long;
};
template <class T>
using Wrap = typename WrapType<T>::type;

// --- functions of floats -----------------------------------------------------------------------

// clang-format off
#define MT_MATH(name, function)                             \
  MT_FN float name(float x) { return ::function##f(x); }    \
  MT_FN double name(double x) { return ::function(x); }
// clang-format on
MT_MATH(exp, exp)
MT_MATH(log, log)
MT_MATH(log1p, log1p)
MT_MATH(expm1, expm1)
MT_MATH(tanh, tanh)
MT_MATH(erf, erf)
MT_MATH(sin, sin)
MT_MATH(cos, cos)
MT_MATH(sqrt, sqrt)
MT_MATH(abs, fabs)
MT_MATH(floor, floor)
MT_MATH(round, rint)
#undef MT_MATH
MT_FN float pow(float x, float y) {
  return ::powf(x, y);
}
MT_FN double pow(double x, double y) {
  return ::pow(x, y);
}
MT_FN float neg(float x) {
  return -x;
}
MT_FN double neg(double x) {
  return -x;
}
MT_FN float div(float a, float b) {
  return a / b;
}
MT_FN double div(double a, double b) {
  return a / b;
}
// A NaN stays one.
MT_FN float sign(float x) {
  return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x;
}
MT_FN double sign(double x) {
  return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
}

// --- and of all types --------------------------------------------------------------------------

template <class T>
MT_FN T copy(T x) {
  return x;
}
template <class T>
MT_FN T neg(T x) {
  return static_cast<T>(Wrap<T>(0) - static_cast<Wrap<T>>(x));
}
// Whether x < 0, which compilers do not want to be asked of unsigned numbers.
template <class T>
MT_FN bool is_below_0(T x) {
  if constexpr (static_cast<T>(-1) < T(1))
    return x < T(0);
  else
    return false;
}
template <class T>
MT_FN T abs(T x) {
  return is_below_0(x) ? neg(x) : x;
}
template <class T>
MT_FN T sign(T x) {
  return static_cast<T>((x > T(0)) - is_below_0(x));
}
template <class T>
MT_FN T add(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
}
template <class T>
MT_FN T sub(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
}
template <class T>
MT_FN T mul(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
}
template <class T>
MT_FN T square(T x) {
  return mul(x, x);
}
template <class T>
MT_FN T div(T a, T b) {
  if (b == T(0))
    return static_cast<T>(-1);
  if constexpr (static_cast<T>(-1) < T(1)) {
    if (b == T(-1))
      return neg(a);
  }
  return static_cast<T>(a / b);
}
template <class T>
MT_FN T max(T a, T b) {
  return (a >= b) | (a != a) ? a : b;
}
template <class T>
MT_FN T min(T a, T b) {
  return (a <= b) | (a != a) ? a : b;
}
template <class T>
MT_FN T relu(T x) {
  return max(x, T(0));
}
template <class T>
MT_FN T clamp(T x, T low, T high) {
  const T value = x < low ? low : x;
  return value > high ? high : value;
}
template <class T>
MT_FN T select(unsigned char condition, T yes, T no) {
  return condition != 0 ? yes : no;
}

// --- made of the above -------------------------------------------------------------------------

template <class T>
MT_FN T reciprocal(T x) {
  return T(1) / x;
}
template <class T>
MT_FN T rsqrt(T x) {
  return T(1) / sqrt(x);
}
template <class T>
MT_FN T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
template <class T>
MT_FN T softplus(T x) {
  return max(x, T(0)) + log1p(exp(-abs(x)));
}

// x times the normal distribution function of x (D. Hendrycks, K. Gimpel, "Gaussian Error Linear
// Units", 2016), and that paper's form with tanh. The gradients take the cotangent of the result.
template <class T>
MT_FN T gelu(T x) {
  return x * T(0.5) * (erf(x * T(0.70710678118654752)) + T(1));
}
template <class T>
MT_FN T gelu_grad(T x, T cotangent) {
  const T density = exp(x * x * T(-0.5)) * T(0.39894228040143268);
  const T below = (erf(x * T(0.70710678118654752)) + T(1)) * T(0.5);
  return cotangent * (below + x * density);
}
template <class T>
MT_FN T gelu_tanh(T x) {
  const T inner = (x + x * x * x * T(0.044715)) * T(0.79788456080286536);
  return x * T(0.5) * (tanh(inner) + T(1));
}
template <class T>
MT_FN T gelu_tanh_grad(T x, T cotangent) {
  const T square = x * x;
  const T t = tanh((x + square * x * T(0.044715)) * T(0.79788456080286536));
  const T slope = (T(1) + square * T(3 * 0.044715)) * T(0.79788456080286536);
  return cotangent * (((t + T(1)) + x * slope * (T(1) - t * t)) * T(0.5));
}
template <class T>
MT_FN T silu(T x) {
  return x * sigmoid(x);
}
template <class T>
MT_FN T silu_grad(T x, T cotangent) {
  const T s = sigmoid(x);
  return cotangent * (s * (T(1) + x * (T(1) - s)));
}

// Rounded twice.
template <class T>
MT_FN T channel_affine(T x, T scale, T shift) {
  return x * scale + shift;
}

// --- comparisons and logic ---------------------------------------------------------------------

template <class T>
MT_FN unsigned char eq(T a, T b) {
  return a == b;
}
template <class T>
MT_FN unsigned char ne(T a, T b) {
  return a != b;
}
template <class T>
MT_FN unsigned char lt(T a, T b) {
  return a < b;
}
template <class T>
MT_FN unsigned char le(T a, T b) {
  return a <= b;
}
template <class T>
MT_FN unsigned char gt(T a, T b) {
  return a > b;
}
template <class T>
MT_FN unsigned char ge(T a, T b) {
  return a >= b;
}
template <class T>
MT_FN unsigned char is_finite(T x) {
  return x - x == T(0);
}
MT_FN unsigned char logical_not(unsigned char x) {
  return x == 0;
}
MT_FN unsigned char logical_and(unsigned char a, unsigned char b) {
  return (a != 0) & (b != 0);
}
MT_FN unsigned char logical_or(unsigned char a, unsigned char b) {
  return (a != 0) | (b != 0);
}
template <class T>
MT_FN unsigned char cast_bool(T x) {
  return x != T(0);
}

}  // namespace
}  // namespace mt
