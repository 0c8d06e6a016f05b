// Elementwise loops over vector math functions. Whole groups of kGroup elements only: what is left
// is computed in a padded group, so that a value's result does not depend on where it stands.
#include "backend/cpu/simd/gelu.h"

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

template <class T>
void fill_float(KernelTable& table) {
  const auto set = [&](ElementOp op, ElementLoop loop) {
    table.element[static_cast<int>(op)][kIndexOf<T>] = loop;
  };
  set(ElementOp::k_exp, unary_loop<T, mt::exp>);
  set(ElementOp::k_log, unary_loop<T, mt::log>);
  set(ElementOp::k_log1p, unary_loop<T, mt::log1p>);
  set(ElementOp::k_expm1, unary_loop<T, mt::expm1>);
  set(ElementOp::k_tanh, unary_loop<T, mt::tanh>);
  set(ElementOp::k_erf, unary_loop<T, mt::erf>);
  set(ElementOp::k_sin, unary_loop<T, mt::sin>);
  set(ElementOp::k_cos, unary_loop<T, mt::cos>);
  set(ElementOp::k_sigmoid, unary_loop<T, mt::sigmoid>);
  set(ElementOp::k_softplus, unary_loop<T, mt::softplus>);
  set(ElementOp::k_pow, binary_loop<T, mt::pow>);
  set(ElementOp::k_gelu, unary_loop<T, gelu_of>);
  set(ElementOp::k_gelu_tanh, unary_loop<T, gelu_tanh_of>);
  set(ElementOp::k_silu, unary_loop<T, mt::silu>);
  set(ElementOp::k_gelu_grad, binary_loop<T, gelu_grad_of>);
  set(ElementOp::k_gelu_tanh_grad, binary_loop<T, gelu_tanh_grad_of>);
  set(ElementOp::k_silu_grad, binary_loop<T, mt::silu_grad>);
}

}  // namespace

void MESHTRAIN_FILL(fill_transcendental)(KernelTable& table) {
  fill_float<float>(table);
  fill_float<double>(table);
}

}  // namespace meshtrain::cpu
