// exp of many numbers at once, for sources that need it in loops with other work. float32: to two
// units in the last place, by a polynomial of degree 6 of Cephes' expf (S. Moshier); exp of less
// than -87.3 is 0, NaN stays NaN. The compiler makes vectors of it.
#pragma once

#include "backend/cpu/simd/math.h"

namespace meshtrain::cpu {
namespace {

inline float exp_of(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  constexpr int32_t kRounderBits = 0x4B400000;
  const float shifted = x * 1.44269504088896341f + kRounder;
  const float n = shifted - kRounder;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = __builtin_bit_cast(int32_t, shifted) - kRounderBits;
  const float scale = __builtin_bit_cast(float, (exponent + 127) << 23);
  return x < -87.3f ? 0.0f : p * scale;
}
inline double exp_of(double x) {
  return exp(x);
}

}  // namespace
}  // namespace meshtrain::cpu
