// The sides of images whose aspect ratio stays.
#pragma once

#include <cstdint>

namespace meshtrain {

// The size of one side that fits the other side to the aspect ratio, as Keras rounds it.
inline int64_t fitting_side(int64_t other, int64_t target, int64_t other_target) {
  return static_cast<int64_t>(static_cast<double>(other * target) /
                              static_cast<double>(other_target));
}

}  // namespace meshtrain
