// Images of one size: what keras.ops.image.resize and the layer Resizing compute.
#pragma once

#include <cstdint>
#include <string>

#include "data/image.h"

namespace meshtrain {

struct ImageSize {
  int64_t height = 256, width = 256;
  std::string interpolation = "bilinear";  // nearest, bilinear, bicubic, lanczos3, lanczos5
  // At most one: the largest middle part of that aspect ratio, or black bars up to it.
  bool crop_to_aspect_ratio = false, pad_to_aspect_ratio = false;
};

// Writes (height, width, image.channels) numbers from 0 to 255 to `to`; bicubic and lanczos go
// beyond. Half-pixel centres, no antialiasing. The same bits everywhere.
void resize_image(const Image& image, const ImageSize& size, float* to);

}  // namespace meshtrain
