// What libraries compute for the emulated device, in plain loops.
#pragma once

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

// Sums are taken in double precision and rounded once, for every dtype: float32 as without TF32.
void run_matmul(const Matmul& matmul);
void run_conv(const Conv& conv);

// Element i of `to` becomes that of the sources combined, one after the other, each result rounded.
void reduce_element(Reduction reduction, DType dtype, const std::vector<const std::byte*>& sources,
                    int64_t i, std::byte* to);

}  // namespace meshtrain::gpu
