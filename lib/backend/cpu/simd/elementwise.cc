// Elementwise loops that need no vector math: arithmetic, comparison, logic, selection.
#include "backend/cpu/simd/math.h"

namespace meshtrain::cpu {
namespace {

template <class R, class T, R (*F)(T)>
void unary_loop(void* out, const void* a, const void*, const void*, int64_t n,
                const ElementParams&) {
  R* o = static_cast<R*>(out);
  const T* x = static_cast<const T*>(a);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = F(x[i]);
}

template <class R, class T, R (*F)(T, T)>
void binary_loop(void* out, const void* a, const void* b, const void*, int64_t n,
                 const ElementParams&) {
  R* o = static_cast<R*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = F(x[i], y[i]);
}

template <class R, class T, R (*F)(T, T)>
void scalar_left_loop(void* out, const void* a, const void* b, const void*, int64_t n,
                      const ElementParams&) {
  R* o = static_cast<R*>(out);
  const T x = *static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = F(x, y[i]);
}

template <class R, class T, R (*F)(T, T)>
void scalar_right_loop(void* out, const void* a, const void* b, const void*, int64_t n,
                       const ElementParams&) {
  R* o = static_cast<R*>(out);
  const T* x = static_cast<const T*>(a);
  const T y = *static_cast<const T*>(b);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = F(x[i], y);
}

template <class T>
void select_loop(void* out, const void* a, const void* b, const void* c, int64_t n,
                 const ElementParams&) {
  T* o = static_cast<T*>(out);
  const uint8_t* condition = static_cast<const uint8_t*>(a);
  const T* x = static_cast<const T*>(b);
  const T* y = static_cast<const T*>(c);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T yes = x[i];
    const T no = y[i];
    o[i] = mt::select(condition[i], yes, no);
  }
}

template <class T>
void clamp_loop(void* out, const void* a, const void*, const void*, int64_t n,
                const ElementParams& params) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T low = static_cast<T>(params.low);
  const T high = static_cast<T>(params.high);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = mt::clamp(x[i], low, high);
}

// x * scale + shift, rounded twice: the same on every level.
template <class T>
void affine_loop(void* out, const void* a, const void* b, const void* c, int64_t n,
                 const ElementParams&) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T* scale = static_cast<const T*>(b);
  const T* shift = static_cast<const T*>(c);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = mt::channel_affine(x[i], scale[i], shift[i]);
}

ElementLoop& entry(KernelTable& table, ElementOp op, int type) {
  return table.element[static_cast<int>(op)][type];
}

template <class R, class T, R (*F)(T, T)>
void fill_binary(KernelTable& table, ElementOp op) {
  entry(table, op, kIndexOf<T>) = binary_loop<R, T, F>;
  table.element_by_scalar[0][static_cast<int>(op)][kIndexOf<T>] = scalar_left_loop<R, T, F>;
  table.element_by_scalar[1][static_cast<int>(op)][kIndexOf<T>] = scalar_right_loop<R, T, F>;
}

template <class T>
void fill_any(KernelTable& table) {
  const auto set = [&](ElementOp op, ElementLoop loop) { entry(table, op, kIndexOf<T>) = loop; };
  set(ElementOp::k_copy, unary_loop<T, T, mt::copy>);
  fill_binary<T, T, mt::max>(table, ElementOp::k_max);
  fill_binary<T, T, mt::min>(table, ElementOp::k_min);
  fill_binary<uint8_t, T, mt::eq>(table, ElementOp::k_eq);
  fill_binary<uint8_t, T, mt::ne>(table, ElementOp::k_ne);
  fill_binary<uint8_t, T, mt::lt>(table, ElementOp::k_lt);
  fill_binary<uint8_t, T, mt::le>(table, ElementOp::k_le);
  fill_binary<uint8_t, T, mt::gt>(table, ElementOp::k_gt);
  fill_binary<uint8_t, T, mt::ge>(table, ElementOp::k_ge);
  set(ElementOp::k_select, select_loop<T>);
}

template <class T>
void fill_number(KernelTable& table) {
  fill_any<T>(table);
  const auto set = [&](ElementOp op, ElementLoop loop) { entry(table, op, kIndexOf<T>) = loop; };
  set(ElementOp::k_neg, unary_loop<T, T, mt::neg>);
  set(ElementOp::k_square, unary_loop<T, T, mt::square>);
  set(ElementOp::k_abs, unary_loop<T, T, mt::abs>);
  set(ElementOp::k_sign, unary_loop<T, T, mt::sign>);
  set(ElementOp::k_relu, unary_loop<T, T, mt::relu>);
  fill_binary<T, T, mt::add>(table, ElementOp::k_add);
  fill_binary<T, T, mt::sub>(table, ElementOp::k_sub);
  fill_binary<T, T, mt::mul>(table, ElementOp::k_mul);
  fill_binary<T, T, mt::div>(table, ElementOp::k_div);
  set(ElementOp::k_clamp, clamp_loop<T>);
}

template <class T>
void fill_float(KernelTable& table) {
  fill_number<T>(table);
  const auto set = [&](ElementOp op, ElementLoop loop) { entry(table, op, kIndexOf<T>) = loop; };
  set(ElementOp::k_sqrt, unary_loop<T, T, mt::sqrt>);
  set(ElementOp::k_rsqrt, unary_loop<T, T, mt::rsqrt>);
  set(ElementOp::k_reciprocal, unary_loop<T, T, mt::reciprocal>);
  set(ElementOp::k_floor, unary_loop<T, T, mt::floor>);
  set(ElementOp::k_round, unary_loop<T, T, mt::round>);
  set(ElementOp::k_is_finite, unary_loop<uint8_t, T, mt::is_finite>);
  set(ElementOp::k_channel_affine, affine_loop<T>);
}

}  // namespace

void MESHTRAIN_FILL(fill_elementwise)(KernelTable& table) {
  fill_number<uint8_t>(table);
  fill_number<int32_t>(table);
  fill_number<uint32_t>(table);
  fill_number<int64_t>(table);
  fill_float<float>(table);
  fill_float<double>(table);
  // A bool is a byte that is 0 or 1.
  constexpr ElementOp kOnBools[] = {
      ElementOp::k_copy, ElementOp::k_max, ElementOp::k_min, ElementOp::k_eq, ElementOp::k_ne,
      ElementOp::k_lt,   ElementOp::k_le,  ElementOp::k_gt,  ElementOp::k_ge, ElementOp::k_select};
  for (ElementOp op : kOnBools) {
    entry(table, op, kTypeBool) = entry(table, op, kTypeU8);
  }
  entry(table, ElementOp::k_logical_not, kTypeBool) = unary_loop<uint8_t, uint8_t, mt::logical_not>;
  entry(table, ElementOp::k_logical_and, kTypeBool) =
      binary_loop<uint8_t, uint8_t, mt::logical_and>;
  entry(table, ElementOp::k_logical_or, kTypeBool) = binary_loop<uint8_t, uint8_t, mt::logical_or>;
}

}  // namespace meshtrain::cpu
