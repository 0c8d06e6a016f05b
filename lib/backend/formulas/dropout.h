// Dropout of one element by its 32 random bits: an integer threshold, so that an element is dropped
// on every device or on none.
#pragma once

#include "base/device_function.h"

namespace mt {
namespace {

// `threshold`: philox_threshold(rate); `scale`: 1 / (1 - rate).
template <class T>
MT_FN T kept(unsigned bits, unsigned threshold, T x, T scale) {
  const T scaled = x * scale;
  return bits < threshold ? T(0) : scaled;
}

}  // namespace
}  // namespace mt
