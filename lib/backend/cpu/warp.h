// Images sampled at affine coordinates (ir/ops/warp.cc says what is computed).
#pragma once

#include <string_view>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

enum class WarpFill : uint8_t { kConstant, kNearest, kWrap, kReflect };
WarpFill warp_fill(std::string_view name);

// Contiguous (images, height, width, channels) of floats.
struct WarpShape {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  DType dtype = DType::kFloat32;
  bool nearest = false;  // else bilinear
  WarpFill fill = WarpFill::kConstant;
  double fill_value = 0;
};

// transforms: float64 (images, 6), contiguous.
KernelPtr make_affine_warp(const WarpShape& shape, const std::byte* x, const std::byte* transforms,
                           std::byte* out);
KernelPtr make_affine_warp_transpose(const WarpShape& shape, const std::byte* dy,
                                     const std::byte* transforms, std::byte* out);

}  // namespace meshtrain::cpu
