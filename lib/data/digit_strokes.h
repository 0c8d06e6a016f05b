// The strokes of digits, in several styles for each.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace meshtrain {

struct DigitStroke {
  // Control points (x to the right, y down) from the digit's centre, in tenths of a pixel.
  std::vector<std::pair<int32_t, int32_t>> points;
  bool closed = false;
};
using DigitStyle = std::vector<DigitStroke>;

// Returns the styles of `digit`, 0 to 9.
std::span<const DigitStyle> digit_styles(int digit);

}  // namespace meshtrain
