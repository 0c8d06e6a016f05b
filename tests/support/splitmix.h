#pragma once

#include <cstdint>

// Numbers that C++ and the reference scripts (tests/reference/splitmix.py) make alike, bit for bit,
// so that goldens need not carry their inputs. Number i of stream `seed` is SplitMix64's output for
// the state seed + (i + 1) * gamma (Steele, Lea, Flood, OOPSLA 2014). All conversions are exact.
namespace meshtrain::test {

inline uint64_t splitmix_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// In [-scale, scale). Exact when scale is a power of two.
inline float splitmix_signed(uint64_t seed, uint64_t index, float scale = 1.0F) {
  const int64_t top = static_cast<int64_t>(splitmix_bits(seed, index) >> 40) - (int64_t{1} << 23);
  return static_cast<float>(top) * 0x1p-23F * scale;
}

// In [0, 1).
inline float splitmix_unit(uint64_t seed, uint64_t index) {
  return static_cast<float>(splitmix_bits(seed, index) >> 40) * 0x1p-24F;
}

// In [0, limit), limit below 2^32.
inline int64_t splitmix_below(uint64_t seed, uint64_t index, uint64_t limit) {
  return static_cast<int64_t>(((splitmix_bits(seed, index) >> 32) * limit) >> 32);
}

}  // namespace meshtrain::test
