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
    o[i] = condition[i] != 0 ? yes : no;
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
  for (int64_t i = 0; i < n; ++i) {
    const T value = x[i] < low ? low : x[i];
    o[i] = value > high ? high : value;
  }
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
    o[i] = x[i] * scale[i] + shift[i];
}

// clang-format off
template <class T> inline T neg(T x) {
  if constexpr (kIsFloat<T>) return -x;
  else return static_cast<T>(Wrap<T>{0} - static_cast<Wrap<T>>(x));
}
template <class T> inline T square(T x) { return static_cast<T>(static_cast<Wrap<T>>(x) * static_cast<Wrap<T>>(x)); }
template <class T> inline T absolute(T x) {
  if constexpr (sizeof(T) == 4 && kIsFloat<T>) return __builtin_fabsf(x);
  else if constexpr (kIsFloat<T>) return __builtin_fabs(x);
  else return x < T{0} ? neg(x) : x;
}
template <class T> inline T sign(T x) {  // NaN stays NaN
  if constexpr (kIsFloat<T>) return x > T{0} ? T{1} : x < T{0} ? T{-1} : x;
  else return static_cast<T>(x > T{0}) - static_cast<T>(x < T{0});
}
template <class T> inline T copy(T x) { return x; }
template <class T> inline T relu(T x) { return larger(x, T{0}); }
template <class T> inline T step(T x) { return x > T{0} ? T{1} : T{0}; }
inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }
template <class T> inline T square_root(T x) { return root(x); }
template <class T> inline T reciprocal_root(T x) { return T{1} / root(x); }
template <class T> inline T reciprocal(T x) { return T{1} / x; }
template <class T> inline T floor_of(T x) { if constexpr (sizeof(T) == 4) return __builtin_floorf(x); else return __builtin_floor(x); }
template <class T> inline T ceil_of(T x) { if constexpr (sizeof(T) == 4) return __builtin_ceilf(x); else return __builtin_ceil(x); }
// Half to even, as NumPy.
template <class T> inline T round_of(T x) { if constexpr (sizeof(T) == 4) return __builtin_rintf(x); else return __builtin_rint(x); }
template <class T> inline uint8_t is_finite(T x) { return (x - x) == T{0}; }
inline uint8_t logical_not(uint8_t x) { return x == 0; }

template <class T> inline T add(T a, T b) { return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b)); }
template <class T> inline T sub(T a, T b) { return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b)); }
template <class T> inline T mul(T a, T b) { return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b)); }
template <class T> inline T div(T a, T b) {
  if constexpr (kIsFloat<T>) return a / b;
  else if (b == T{0}) return static_cast<T>(-1);  // as XLA: all bits set
  else if constexpr (static_cast<T>(-1) < T{0}) return b == T{-1} ? neg(a) : static_cast<T>(a / b);
  else return static_cast<T>(a / b);
}
template <class T> inline T integer_pow(T base, T exponent) {
  Wrap<T> result = 1, factor = static_cast<Wrap<T>>(base);
  if (exponent < T{0}) return static_cast<T>(base == T{1});
  for (Wrap<T> e = static_cast<Wrap<T>>(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}
template <class T> inline uint8_t eq(T a, T b) { return a == b; }
template <class T> inline uint8_t ne(T a, T b) { return a != b; }
template <class T> inline uint8_t lt(T a, T b) { return a < b; }
template <class T> inline uint8_t le(T a, T b) { return a <= b; }
template <class T> inline uint8_t gt(T a, T b) { return a > b; }
template <class T> inline uint8_t ge(T a, T b) { return a >= b; }
inline uint8_t logical_and(uint8_t a, uint8_t b) { return (a != 0) & (b != 0); }
inline uint8_t logical_or(uint8_t a, uint8_t b) { return (a != 0) | (b != 0); }
// clang-format on

ElementLoop& entry(KernelTable& table, ElementOp op, int type) {
  return table.element[static_cast<int>(op)][type];
}

template <class T>
void fill_any(KernelTable& table) {
  const auto set = [&](ElementOp op, ElementLoop loop) { entry(table, op, kIndexOf<T>) = loop; };
  set(ElementOp::k_copy, unary_loop<T, T, copy<T>>);
  set(ElementOp::k_max, binary_loop<T, T, larger<T>>);
  set(ElementOp::k_min, binary_loop<T, T, smaller<T>>);
  set(ElementOp::k_eq, binary_loop<uint8_t, T, eq<T>>);
  set(ElementOp::k_ne, binary_loop<uint8_t, T, ne<T>>);
  set(ElementOp::k_lt, binary_loop<uint8_t, T, lt<T>>);
  set(ElementOp::k_le, binary_loop<uint8_t, T, le<T>>);
  set(ElementOp::k_gt, binary_loop<uint8_t, T, gt<T>>);
  set(ElementOp::k_ge, binary_loop<uint8_t, T, ge<T>>);
  set(ElementOp::k_select, select_loop<T>);
}

template <class T>
void fill_number(KernelTable& table) {
  fill_any<T>(table);
  const auto set = [&](ElementOp op, ElementLoop loop) { entry(table, op, kIndexOf<T>) = loop; };
  set(ElementOp::k_neg, unary_loop<T, T, neg<T>>);
  set(ElementOp::k_square, unary_loop<T, T, square<T>>);
  set(ElementOp::k_abs, unary_loop<T, T, absolute<T>>);
  set(ElementOp::k_sign, unary_loop<T, T, sign<T>>);
  set(ElementOp::k_relu, unary_loop<T, T, relu<T>>);
  set(ElementOp::k_step, unary_loop<T, T, step<T>>);
  set(ElementOp::k_add, binary_loop<T, T, add<T>>);
  set(ElementOp::k_sub, binary_loop<T, T, sub<T>>);
  set(ElementOp::k_mul, binary_loop<T, T, mul<T>>);
  set(ElementOp::k_div, binary_loop<T, T, div<T>>);
  set(ElementOp::k_clamp, clamp_loop<T>);
  if constexpr (!kIsFloat<T>) {
    set(ElementOp::k_pow, binary_loop<T, T, integer_pow<T>>);
    set(ElementOp::k_floor, unary_loop<T, T, copy<T>>);
    set(ElementOp::k_ceil, unary_loop<T, T, copy<T>>);
    set(ElementOp::k_round, unary_loop<T, T, copy<T>>);
  }
}

template <class T>
void fill_float(KernelTable& table) {
  fill_number<T>(table);
  const auto set = [&](ElementOp op, ElementLoop loop) { entry(table, op, kIndexOf<T>) = loop; };
  set(ElementOp::k_sqrt, unary_loop<T, T, square_root<T>>);
  set(ElementOp::k_rsqrt, unary_loop<T, T, reciprocal_root<T>>);
  set(ElementOp::k_reciprocal, unary_loop<T, T, reciprocal<T>>);
  set(ElementOp::k_floor, unary_loop<T, T, floor_of<T>>);
  set(ElementOp::k_ceil, unary_loop<T, T, ceil_of<T>>);
  set(ElementOp::k_round, unary_loop<T, T, round_of<T>>);
  set(ElementOp::k_is_finite, unary_loop<uint8_t, T, is_finite<T>>);
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
  entry(table, ElementOp::k_logical_not, kTypeBool) = unary_loop<uint8_t, uint8_t, logical_not>;
  entry(table, ElementOp::k_logical_and, kTypeBool) = binary_loop<uint8_t, uint8_t, logical_and>;
  entry(table, ElementOp::k_logical_or, kTypeBool) = binary_loop<uint8_t, uint8_t, logical_or>;
}

}  // namespace meshtrain::cpu
