// Philox4x32-10, the counter-based random generator of Salmon, Moraes, Dror and Shaw, "Parallel
// Random Numbers: As Easy as 1, 2, 3" (SC 2011), section 4.3.
//
// Every random number of a run is a pure function of (seed, stream, step, global element index):
//   key     = the 64-bit seed
//   counter = (index / 4 low, index / 4 high, stream, step)
//   number  = lane index % 4 of the block
// so that it does not depend on the mesh, the thread or the order of computation. `stream` is the
// low half of the hash of an op's stable path; never a node number.
#pragma once

#include <array>
#include <cstdint>

#include "base/philox_block.h"

namespace meshtrain {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock philox4x32_10(PhiloxBlock counter, uint64_t key) {
  const uint64_t block = uint64_t{counter[1]} << 32 | counter[0];
  const mt::PhiloxBlock out = mt::philox(block, counter[2], counter[3], static_cast<uint32_t>(key),
                                         static_cast<uint32_t>(key >> 32));
  return {out.v[0], out.v[1], out.v[2], out.v[3]};
}

// The 32 random bits of global element `index`.
inline uint32_t philox_bits(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index) {
  const uint64_t block = index / 4;
  return philox4x32_10(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream, step},
      seed)[index % 4];
}

// An integer threshold t such that bits < t happens with probability `p` (0 <= p < 1).
inline uint32_t philox_threshold(double p) {
  const double scaled = p * 4294967296.0;
  return scaled >= 4294967295.0 ? 4294967295u : static_cast<uint32_t>(scaled);
}

}  // namespace meshtrain
