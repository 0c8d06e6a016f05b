// Normal random numbers as a pure function of random bits, with the same result on every machine.
// It uses only + - * / and sqrt of IEEE double arithmetic: no library function, no fused
// multiply-add (the file is compiled with -ffp-contract=off).
//
// The method is the inverse normal distribution function, algorithm AS 241 (PPND16) of M. J.
// Wichura, "The Percentage Points of the Normal Distribution", Applied Statistics 37 (1988)
// 477-484; relative accuracy about 1e-15.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"

namespace meshtrain {

// The x with P(N(0,1) <= x) = p. Requires 0 < p < 1.
double normal_quantile(double p);

// Natural logarithm to about 5e-16 relative, the same bits everywhere. Requires x > 0,
// finite and not denormal.
double portable_log(double x);

// Uniform in the open interval (0, 1): (the top 52 of 64 bits + 1/2) / 2^52, which is exact.
inline double open_uniform(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

// A standard normal number from 64 random bits; |x| <= 8.3.
inline double normal_from_bits(uint32_t high, uint32_t low) {
  return normal_quantile(open_uniform(high, low));
}

// The 64 random bits of global element `index`: two lanes of a Philox block, so that elements
// 2 b and 2 b + 1 share block b.
inline double philox_normal(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index) {
  const uint64_t block = index / 2;
  const PhiloxBlock bits = philox4x32_10(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream, step}, seed);
  return index % 2 == 0 ? normal_from_bits(bits[0], bits[1]) : normal_from_bits(bits[2], bits[3]);
}

// out[i] = philox_normal(seed, stream, step, begin + i), two numbers per block.
void fill_normal(uint64_t seed, uint32_t stream, uint32_t step, uint64_t begin,
                 std::span<double> out);

}  // namespace meshtrain
