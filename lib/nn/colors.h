// Colours of images (N, H, W, C) in a graph. Factors are numbers of each image, (N, 1, 1, 1).
// Sources: ITU-R BT.601 (grey); A. R. Smith, "Color gamut transform pairs", 1978 (hue, saturation).
#pragma once

#include "ir/builder.h"

namespace meshtrain {

// The smallest and the largest value of a pixel.
struct PixelRange {
  double low = 0, high = 0;
};
inline constexpr PixelRange kBytes = {0, 255};

// x of range `from`, mapped to range `to`.
ValueId to_range(Builder& builder, ValueId x, PixelRange from, PixelRange to);
ValueId clamp_to(Builder& builder, ValueId x, PixelRange range);

// (N, H, W, 3) to its luma (N, H, W, 1); one channel stays as it is.
ValueId grayscale(Builder& builder, ValueId x);

// (N, H, W, 3) to hue in [0, 1], saturation and value, and back.
ValueId rgb_to_hsv(Builder& builder, ValueId x);
ValueId hsv_to_rgb(Builder& builder, ValueId x);

// x + f * (width of the range).
ValueId with_brightness(Builder& builder, ValueId x, ValueId f, PixelRange range);
// (x - mean) f + mean with the mean of each channel.
ValueId with_contrast(Builder& builder, ValueId x, ValueId f, PixelRange range);
// Saturation times f / (1 - f): 0 is grey, 0.5 changes nothing. Three channels.
ValueId with_saturation(Builder& builder, ValueId x, ValueId f);
// Hue shifted by `shift` parts of the circle. Three channels.
ValueId with_hue(Builder& builder, ValueId x, ValueId shift, PixelRange range);

}  // namespace meshtrain
