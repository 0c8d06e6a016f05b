// Which convolutions cuDNN can compute.
#pragma once

#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

// float32 and 16-bit floats in all three directions: one to three spatial dimensions, any strides,
// dilations, groups, and padding before and behind. Its plans can be made without a GPU, and tests
// do that. Not float64, which proves that meshes are equal: its sums have an order of our own.
bool library_takes(const ConvShape& shape);

}  // namespace meshtrain::gpu
