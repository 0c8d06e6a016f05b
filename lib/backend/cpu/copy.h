// Moving elements: transposes, slices, broadcasts, concatenations and paddings are copies between
// strided views.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// to[i...] = from[i...], of one shape and dtype. The views must not overlap.
KernelPtr make_copy(const View& from, const View& to);

}  // namespace meshtrain::cpu
