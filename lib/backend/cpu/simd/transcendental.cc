// Elementwise loops over vector math functions. Whole groups of kGroup elements only: what is left
// is computed in a padded group, so that a value's result does not depend on where it stands.
#include "backend/cpu/simd/math.h"

namespace meshtrain::cpu {
namespace {

constexpr int kGroup = 16;

template <class T, T (*F)(T)>
void unary_loop(void* out, const void* a, const void*, const void*, int64_t n,
                const ElementParams&) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const int64_t whole = n / kGroup * kGroup;
  for (int64_t base = 0; base < whole; base += kGroup) {
#pragma omp simd
    for (int i = 0; i < kGroup; ++i)
      o[base + i] = F(x[base + i]);
  }
  if (whole == n)
    return;
  alignas(64) T in[kGroup];
  alignas(64) T result[kGroup];
  for (int i = 0; i < kGroup; ++i)
    in[i] = whole + i < n ? x[whole + i] : T{1};
#pragma omp simd
  for (int i = 0; i < kGroup; ++i)
    result[i] = F(in[i]);
  for (int64_t i = whole; i < n; ++i)
    o[i] = result[i - whole];
}

template <class T, T (*F)(T, T)>
void binary_loop(void* out, const void* a, const void* b, const void*, int64_t n,
                 const ElementParams&) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const int64_t whole = n / kGroup * kGroup;
  for (int64_t base = 0; base < whole; base += kGroup) {
#pragma omp simd
    for (int i = 0; i < kGroup; ++i)
      o[base + i] = F(x[base + i], y[base + i]);
  }
  if (whole == n)
    return;
  alignas(64) T left[kGroup];
  alignas(64) T right[kGroup];
  alignas(64) T result[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    left[i] = whole + i < n ? x[whole + i] : T{1};
    right[i] = whole + i < n ? y[whole + i] : T{1};
  }
#pragma omp simd
  for (int i = 0; i < kGroup; ++i)
    result[i] = F(left[i], right[i]);
  for (int64_t i = whole; i < n; ++i)
    o[i] = result[i - whole];
}

// clang-format off
#define MESHTRAIN_OVERLOAD(op, function)                             \
  inline float op(float x) { return function##f(x); }                \
  inline double op(double x) { return function(x); }
MESHTRAIN_OVERLOAD(exp_of, exp)
MESHTRAIN_OVERLOAD(log_of, log)
MESHTRAIN_OVERLOAD(log1p_of, log1p)
MESHTRAIN_OVERLOAD(expm1_of, expm1)
MESHTRAIN_OVERLOAD(tanh_of, tanh)
MESHTRAIN_OVERLOAD(erf_of, erf)
MESHTRAIN_OVERLOAD(sin_of, sin)
MESHTRAIN_OVERLOAD(cos_of, cos)
#undef MESHTRAIN_OVERLOAD
inline float abs_of(float x) { return __builtin_fabsf(x); }
inline double abs_of(double x) { return __builtin_fabs(x); }
inline float pow_of(float x, float y) { return powf(x, y); }
inline double pow_of(double x, double y) { return pow(x, y); }

template <class T> inline T op_exp(T x) { return exp_of(x); }
template <class T> inline T op_log(T x) { return log_of(x); }
template <class T> inline T op_log1p(T x) { return log1p_of(x); }
template <class T> inline T op_expm1(T x) { return expm1_of(x); }
template <class T> inline T op_tanh(T x) { return tanh_of(x); }
template <class T> inline T op_erf(T x) { return erf_of(x); }
template <class T> inline T op_sin(T x) { return sin_of(x); }
template <class T> inline T op_cos(T x) { return cos_of(x); }
template <class T> inline T op_sigmoid(T x) { return T{1} / (T{1} + exp_of(-x)); }
template <class T> inline T op_softplus(T x) { return larger(x, T{0}) + log1p_of(exp_of(-abs_of(x))); }
template <class T> inline T op_pow(T x, T y) { return pow_of(x, y); }
// clang-format on

template <class T>
void fill_float(KernelTable& table) {
  const auto set = [&](ElementOp op, ElementLoop loop) {
    table.element[static_cast<int>(op)][kIndexOf<T>] = loop;
  };
  set(ElementOp::k_exp, unary_loop<T, op_exp<T>>);
  set(ElementOp::k_log, unary_loop<T, op_log<T>>);
  set(ElementOp::k_log1p, unary_loop<T, op_log1p<T>>);
  set(ElementOp::k_expm1, unary_loop<T, op_expm1<T>>);
  set(ElementOp::k_tanh, unary_loop<T, op_tanh<T>>);
  set(ElementOp::k_erf, unary_loop<T, op_erf<T>>);
  set(ElementOp::k_sin, unary_loop<T, op_sin<T>>);
  set(ElementOp::k_cos, unary_loop<T, op_cos<T>>);
  set(ElementOp::k_sigmoid, unary_loop<T, op_sigmoid<T>>);
  set(ElementOp::k_softplus, unary_loop<T, op_softplus<T>>);
  set(ElementOp::k_pow, binary_loop<T, op_pow<T>>);
}

}  // namespace

void MESHTRAIN_FILL(fill_transcendental)(KernelTable& table) {
  fill_float<float>(table);
  fill_float<double>(table);
}

}  // namespace meshtrain::cpu
