// The 16-bit floats: stored as uint16_t, computed as float.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace meshtrain {

inline float half_to_float(uint16_t h) {
  _Float16 value;
  std::memcpy(&value, &h, sizeof(value));
  return static_cast<float>(value);
}
inline uint16_t float_to_half(float f) {
  const _Float16 value = static_cast<_Float16>(f);
  uint16_t h;
  std::memcpy(&h, &value, sizeof(h));
  return h;
}
inline float bfloat16_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}
inline uint16_t float_to_bfloat16(float f) {  // round to nearest even; NaN stays NaN
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace meshtrain
