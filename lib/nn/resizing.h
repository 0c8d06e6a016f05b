// Images of another size.
#pragma once

#include <string_view>

#include "ir/builder.h"

namespace meshtrain {

// x (N, H, W, C) becomes (height, width) large: along each side a product with a matrix of weights,
// as jax.image.resize makes it, whose rows sum to 1. Half-pixel centres. `method`: nearest,
// bilinear, bicubic (Keys, a = -1/2), lanczos3 or lanczos5; `antialias` widens the kernel when
// shrinking.
ValueId resize(Builder& b, ValueId x, int64_t height, int64_t width, std::string_view method,
               bool antialias);

// The middle of x (N, H, W, C), which is at least (height, width) large.
ValueId center_crop(Builder& b, ValueId x, int64_t height, int64_t width);
// The largest middle part of x (N, H, W, C) with the aspect ratio height : width.
ValueId crop_to_aspect_ratio(Builder& b, ValueId x, int64_t height, int64_t width);
// x (N, H, W, C) with both ends of its shorter side filled, up to that aspect ratio; Keras fills
// them alike, so an odd rest is left out.
ValueId pad_to_aspect_ratio(Builder& b, ValueId x, int64_t height, int64_t width, double value);

}  // namespace meshtrain
