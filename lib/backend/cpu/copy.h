// Moving elements: transposes, slices, broadcasts, concatenations and paddings are copies between
// strided views.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// to[i...] = from[i...], of one shape and dtype. The views must not overlap.
KernelPtr make_copy(const View& from, const View& to);
// Every element of `to`, which must be contiguous, becomes `value`.
KernelPtr make_fill(const View& to, double value);
// to[i...] = start + i[axis] * 1 for every element; `to` contiguous.
KernelPtr make_iota(const View& to, size_t axis, int64_t start);

}  // namespace meshtrain::cpu
