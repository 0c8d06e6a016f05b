// Matrix products and convolutions of the emulated device, in plain loops.
#pragma once

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

// Sums are taken in double precision and rounded once, for every dtype: float32 as without TF32.
void run_matmul(const Matmul& matmul);
void run_conv(const Conv& conv);

}  // namespace meshtrain::gpu
