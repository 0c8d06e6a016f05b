// Conversion between element types. Floating to integer truncates towards zero; to bool tests for
// zero.
#include <limits>

#include "backend/cpu/simd/half.h"

namespace meshtrain::cpu {
namespace {

// As on GPUs, and by XLA: what is beyond the range becomes its end, a NaN 0.
template <class To, class From>
inline To whole(From x) {
  using Limits = std::numeric_limits<To>;
  constexpr From low = static_cast<From>(Limits::min());
  constexpr From behind = static_cast<From>(Limits::max() / 2 + 1) * 2;
  const bool fits = x >= low && x < behind;
  return fits ? static_cast<To>(x) : x >= behind ? Limits::max() : x < low ? Limits::min() : To{0};
}

template <class From, class To>
void cast_loop(void* out, const void* a, const void*, const void*, int64_t n,
               const ElementParams&) {
  To* o = static_cast<To*>(out);
  const From* x = static_cast<const From*>(a);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kIsFloat<From> && sizeof(To) == 1) {
      o[i] = static_cast<To>(whole<int32_t>(x[i]));
    } else if constexpr (kIsFloat<From> && !kIsFloat<To>) {
      o[i] = whole<To>(x[i]);
    } else {
      o[i] = static_cast<To>(x[i]);
    }
  }
}

template <class From>
void bool_loop(void* out, const void* a, const void*, const void*, int64_t n,
               const ElementParams&) {
  uint8_t* o = static_cast<uint8_t*>(out);
  const From* x = static_cast<const From*>(a);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    o[i] = x[i] != From{0};
}

template <class From>
void fill_from(KernelTable& table, int from) {
  ElementLoop* row = table.cast[from];
  row[kTypeBool] = bool_loop<From>;
  row[kTypeU8] = cast_loop<From, uint8_t>;
  row[kTypeI32] = cast_loop<From, int32_t>;
  row[kTypeU32] = cast_loop<From, uint32_t>;
  row[kTypeI64] = cast_loop<From, int64_t>;
  row[kTypeF32] = cast_loop<From, float>;
  row[kTypeF64] = cast_loop<From, double>;
}

template <class H>
void widen_loop(void* out, const void* a, const void*, const void*, int64_t n,
                const ElementParams&) {
  widen(static_cast<float*>(out), static_cast<const H*>(a), n);
}
template <class H>
void narrow_loop(void* out, const void* a, const void*, const void*, int64_t n,
                 const ElementParams&) {
  narrow(static_cast<H*>(out), static_cast<const float*>(a), n);
}

}  // namespace

void MESHTRAIN_FILL(fill_cast)(KernelTable& table) {
  fill_from<uint8_t>(table, kTypeBool);
  fill_from<uint8_t>(table, kTypeU8);
  fill_from<int32_t>(table, kTypeI32);
  fill_from<uint32_t>(table, kTypeU32);
  fill_from<int64_t>(table, kTypeI64);
  fill_from<float>(table, kTypeF32);
  fill_from<double>(table, kTypeF64);
  table.cast[kTypeBF16][kTypeF32] = widen_loop<BFloat16>;
  table.cast[kTypeF16][kTypeF32] = widen_loop<Float16>;
  table.cast[kTypeF32][kTypeBF16] = narrow_loop<BFloat16>;
  table.cast[kTypeF32][kTypeF16] = narrow_loop<Float16>;
}

}  // namespace meshtrain::cpu
