// 16-bit floats in the inner loops: kept as bits, computed with as float32, rounded to the nearest
// even when they are stored.
#pragma once

#include <immintrin.h>

#include "backend/cpu/simd/math.h"

namespace meshtrain::cpu {
namespace {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <>
constexpr int kIndexOf<BFloat16> = kTypeBF16;
template <>
constexpr int kIndexOf<Float16> = kTypeF16;

inline float to_float(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
inline BFloat16 to_half(BFloat16, float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded)};
}
inline float to_float(Float16 x) {
  return static_cast<float>(__builtin_bit_cast(_Float16, x.bits));
}
inline Float16 to_half(Float16, float x) {
  return {__builtin_bit_cast(uint16_t, static_cast<_Float16>(x))};
}

inline void widen(float* out, const BFloat16* in, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    out[i] = to_float(in[i]);
}
inline void narrow(BFloat16* out, const float* in, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    out[i] = to_half(BFloat16{}, in[i]);
}

// The compiler makes no vectors of these.
inline void widen(float* out, const Float16* in, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(in + i))));
#endif
  for (; i < n; ++i)
    out[i] = to_float(in[i]);
}
inline void narrow(Float16* out, const float* in, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128((__m128i*)(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; ++i)
    out[i] = to_half(Float16{}, in[i]);
}

constexpr int64_t kHalfBlock = 1024;  // elements widened at a time

}  // namespace
}  // namespace meshtrain::cpu
