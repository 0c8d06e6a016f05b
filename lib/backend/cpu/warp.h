// Images sampled at affine coordinates (ir/ops/warp.cc says what is computed).
#pragma once

#include <string_view>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// transforms: float64 (images, 6), contiguous.
KernelPtr make_affine_warp(const WarpShape& shape, const std::byte* x, const std::byte* transforms,
                           std::byte* out);
KernelPtr make_affine_warp_transpose(const WarpShape& shape, const std::byte* dy,
                                     const std::byte* transforms, std::byte* out);

}  // namespace meshtrain::cpu
