// Constants of generated kernels over images and their windows (pools, convolutions).
#pragma once

#include <string>

#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

// The types of indices; I0 I1 I2 (input), O0.. (output), K0.. (cells), S0.. (strides), D0..
// (dilations), P0.. (pads); N0.. and `elements`: what the threads of `images` images with `columns`
// elements a pixel compute, pixels of the input or of the output. `reach`: what else the indices
// must hold.
std::string window_text(const PoolShape& shape, bool of_input, int64_t images, int64_t columns,
                        int64_t reach = 0);
std::string window_text(const ConvShape& shape, bool of_input, int64_t images, int64_t columns,
                        int64_t reach = 0);

}  // namespace meshtrain::gpu
