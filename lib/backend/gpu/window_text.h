// Structs and indices of kernels over images and their windows (pools, convolutions).
#pragma once

#include <string>

#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

// "Window{.input = {1, 28, 28}, ...}" of device/window.cuh.
std::string window_text(const PoolShape& shape);
std::string window_text(const ConvShape& shape);
// The reach (text.h) of indices of these images, of so many elements that threads compute, and
// `more`.
int64_t window_reach(const PoolShape& shape, int64_t elements, int64_t more = 0);
int64_t window_reach(const ConvShape& shape, int64_t elements, int64_t more = 0);

}  // namespace meshtrain::gpu
