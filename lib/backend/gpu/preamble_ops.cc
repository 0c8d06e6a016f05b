#include "backend/gpu/preamble_ops.h"

namespace meshtrain::gpu {
namespace {

// Meanings as cpu/simd/elementwise.cc and transcendental.cc: a NaN is never hidden by a maximum or
// a relu, integers wrap, x / 0 has all bits set, round takes halves to even. A bool is an unsigned
// char that is 0 or 1.
constexpr std::string_view kOps = R"(
// Unsigned types in which whole numbers wrap instead of being undefined.
template <class T> struct mt_wrap { typedef T type; };
template <> struct mt_wrap<int> { typedef unsigned type; };
template <> struct mt_wrap<long long> { typedef unsigned long long type; };
#define MT_WRAP(x) ((typename mt_wrap<T>::type)(x))

#define MT_MATH(name, function)                             \
  MT_FN float name(float x) { return function##f(x); }      \
  MT_FN double name(double x) { return function(x); }
MT_MATH(mt_exp, exp)
MT_MATH(mt_log, log)
MT_MATH(mt_log1p, log1p)
MT_MATH(mt_expm1, expm1)
MT_MATH(mt_tanh, tanh)
MT_MATH(mt_erf, erf)
MT_MATH(mt_sin, sin)
MT_MATH(mt_cos, cos)
MT_MATH(mt_sqrt, sqrt)
MT_MATH(mt_abs, fabs)
MT_MATH(mt_floor, floor)
MT_MATH(mt_ceil, ceil)
MT_MATH(mt_round, rint)
#undef MT_MATH
template <class T> MT_FN T mt_floor(T x) { return x; }
template <class T> MT_FN T mt_ceil(T x) { return x; }
template <class T> MT_FN T mt_round(T x) { return x; }
template <class T> MT_FN T mt_copy(T x) { return x; }

MT_FN float mt_neg(float x) { return -x; }
MT_FN double mt_neg(double x) { return -x; }
template <class T> MT_FN T mt_neg(T x) { return (T)(MT_WRAP(0) - MT_WRAP(x)); }
template <class T> MT_FN bool mt_is_below_0(T x) { return x < T(1) && x != T(0); }
template <class T> MT_FN T mt_abs(T x) { return mt_is_below_0(x) ? mt_neg(x) : x; }
MT_FN float mt_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
MT_FN double mt_sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x; }
template <class T> MT_FN T mt_sign(T x) { return (T)((x > T(0)) - mt_is_below_0(x)); }
template <class T> MT_FN T mt_add(T a, T b) { return (T)(MT_WRAP(a) + MT_WRAP(b)); }
template <class T> MT_FN T mt_sub(T a, T b) { return (T)(MT_WRAP(a) - MT_WRAP(b)); }
template <class T> MT_FN T mt_mul(T a, T b) { return (T)(MT_WRAP(a) * MT_WRAP(b)); }
template <class T> MT_FN T mt_square(T x) { return mt_mul(x, x); }
MT_FN float mt_div(float a, float b) { return a / b; }
MT_FN double mt_div(double a, double b) { return a / b; }
template <class T> MT_FN T mt_div(T a, T b) {
  if (b == T(0)) return (T)-1;
  if (T(-1) < T(0) && b == T(-1)) return mt_neg(a);
  return (T)(a / b);
}
template <class T> MT_FN T mt_max(T a, T b) { return (a >= b) | (a != a) ? a : b; }
template <class T> MT_FN T mt_min(T a, T b) { return (a <= b) | (a != a) ? a : b; }
template <class T> MT_FN T mt_relu(T x) { return mt_max(x, T(0)); }
template <class T> MT_FN T mt_step(T x) { return x > T(0) ? T(1) : T(0); }
template <class T> MT_FN T mt_reciprocal(T x) { return T(1) / x; }
template <class T> MT_FN T mt_rsqrt(T x) { return T(1) / mt_sqrt(x); }
template <class T> MT_FN T mt_sigmoid(T x) { return T(1) / (T(1) + mt_exp(-x)); }
template <class T> MT_FN T mt_softplus(T x) {
  return mt_max(x, T(0)) + mt_log1p(mt_exp(-mt_abs(x)));
}
MT_FN float mt_pow(float x, float y) { return powf(x, y); }
MT_FN double mt_pow(double x, double y) { return pow(x, y); }
template <class T> MT_FN T mt_pow(T base, T exponent) {
  if (mt_is_below_0(exponent)) return (T)(base == T(1));
  typename mt_wrap<T>::type result = 1, factor = MT_WRAP(base);
  for (typename mt_wrap<T>::type e = MT_WRAP(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= factor;
    factor *= factor;
  }
  return (T)result;
}
template <class T> MT_FN T mt_clamp(T x, T low, T high) {
  const T value = x < low ? low : x;
  return value > high ? high : value;
}
template <class T> MT_FN T mt_channel_affine(T x, T scale, T shift) { return x * scale + shift; }
template <class T> MT_FN T mt_select(unsigned char condition, T yes, T no) {
  return condition != 0 ? yes : no;
}

template <class T> MT_FN unsigned char mt_eq(T a, T b) { return a == b; }
template <class T> MT_FN unsigned char mt_ne(T a, T b) { return a != b; }
template <class T> MT_FN unsigned char mt_lt(T a, T b) { return a < b; }
template <class T> MT_FN unsigned char mt_le(T a, T b) { return a <= b; }
template <class T> MT_FN unsigned char mt_gt(T a, T b) { return a > b; }
template <class T> MT_FN unsigned char mt_ge(T a, T b) { return a >= b; }
template <class T> MT_FN unsigned char mt_is_finite(T x) { return x - x == T(0); }
MT_FN unsigned char mt_logical_not(unsigned char x) { return x == 0; }
MT_FN unsigned char mt_logical_and(unsigned char a, unsigned char b) { return a != 0 && b != 0; }
MT_FN unsigned char mt_logical_or(unsigned char a, unsigned char b) { return a != 0 || b != 0; }
template <class T> MT_FN unsigned char mt_cast_bool(T x) { return x != T(0); }
)";

}  // namespace

std::string_view preamble_ops() {
  return kOps;
}

}  // namespace meshtrain::gpu
