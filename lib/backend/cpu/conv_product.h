// Convolutions in float32 that are matrix products: those of one cell, over all pixels of adjacent
// images at once, and the gradients of kernels over images of a few pixels, whose patches are
// copied side by side first: oneDNN's primitives write several terms as large as the kernel.
#pragma once

#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/kernel_spec.h"

namespace meshtrain::cpu {

// All of these return no product where it is none: for another type, groups, several cells,
// strides, few channels, or images here and there.
std::vector<MatmulSpec> conv_products(const ConvSpec& spec);
std::vector<MatmulSpec> conv_products(const ConvDgradSpec& spec);

struct WgradProducts {
  KernelPtr patches;  // comes first; null: there are none
  std::vector<MatmulSpec> products;
};
WgradProducts wgrad_products(const ConvWgradSpec& spec, ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
