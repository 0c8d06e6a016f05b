// The canvas of drawn digits: 28 x 28 pixels, lengths in 1/64 pixel. All results are exact, so that
// the bytes do not depend on the instruction set.
#pragma once

#include <array>
#include <cstdint>

#include "base/philox.h"

namespace meshtrain {

constexpr int kDigitSide = 28;
constexpr int kDigitPixels = kDigitSide * kDigitSide;
constexpr int kDigitOne = 64;  // one pixel

struct DigitPoint {
  int32_t x = 0;
  int32_t y = 0;
};

class DigitCanvas {
 public:
  // Rows have room for a whole vector that begins at their last pixel.
  static constexpr int kLanes = 8;
  static constexpr int kStride = kDigitSide + kLanes;

  // Draws the straight segment from `a` to `b` with a round pen of radius `radius`; where segments
  // overlap the darker one counts.
  void line(DigitPoint a, DigitPoint b, int32_t radius);
  static constexpr int kPaddedSide = 32;

  // The pixels with uneven ink: `ink` of 256, and up to `noise` grey levels either way, from one
  // random byte per pixel; a few more may be read.
  void finish(int32_t ink, int32_t noise, const uint8_t* bytes, uint8_t* pixels) const;

  // The next kRandomBlocks blocks of Philox, counted in the last word.
  static constexpr int kRandomBlocks = 8;
  static void random(const PhiloxBlock& first, uint64_t key, uint32_t* out);

 private:
  std::array<int32_t, kDigitSide * kStride> ink_{};
};

}  // namespace meshtrain
