// The function of Philox4x32-10 (base/philox.h says what it is used for): ten rounds of two
// products each. With counter c, key k and the products
//   p = 0xD2511F53 c[0],  q = 0xCD9E8D57 c[2]
// a round makes the counter (high q ^ c[1] ^ k[0], low q, high p ^ c[3] ^ k[1], low p), and then
// adds 0x9E3779B9 and 0xBB67AE85 to the key.
#pragma once

#include "base/device_function.h"

namespace mt {
namespace {

constexpr int kPhiloxRounds = 10;
constexpr unsigned kPhiloxFactors[2] = {0xD2511F53u, 0xCD9E8D57u};
constexpr unsigned kPhiloxSteps[2] = {0x9E3779B9u, 0xBB67AE85u};

struct PhiloxBlock {
  unsigned v[4];
};

// `block`: the low half of the counter; k0 and k1: the halves of the key.
MT_FN PhiloxBlock philox(unsigned long long block, unsigned stream, unsigned step, unsigned k0,
                         unsigned k1) {
  constexpr unsigned factor0 = kPhiloxFactors[0], factor1 = kPhiloxFactors[1];
  constexpr unsigned step0 = kPhiloxSteps[0], step1 = kPhiloxSteps[1];
  unsigned c0 = static_cast<unsigned>(block), c1 = static_cast<unsigned>(block >> 32);
  unsigned c2 = stream, c3 = step;
  MT_UNROLL
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const unsigned long long p = static_cast<unsigned long long>(factor0) * c0;
    const unsigned long long q = static_cast<unsigned long long>(factor1) * c2;
    c0 = static_cast<unsigned>(q >> 32) ^ c1 ^ k0;
    c1 = static_cast<unsigned>(q);
    c2 = static_cast<unsigned>(p >> 32) ^ c3 ^ k1;
    c3 = static_cast<unsigned>(p);
    k0 += step0;
    k1 += step1;
  }
  return {{c0, c1, c2, c3}};
}

// block.v[lane], in registers.
MT_FN unsigned philox_lane(const PhiloxBlock& block, unsigned lane) {
  const unsigned low = lane % 2u == 0u ? block.v[0] : block.v[1];
  const unsigned high = lane % 2u == 0u ? block.v[2] : block.v[3];
  return lane < 2u ? low : high;
}

}  // namespace
}  // namespace mt
