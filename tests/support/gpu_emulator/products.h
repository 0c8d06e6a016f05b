// What libraries compute for the emulated device, in plain loops.
#pragma once

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

// Sums are taken in double precision and rounded once, for every dtype. `use_tf32`: float32
// operands have ten bits behind the point.
void run_matmul(const Matmul& matmul, bool use_tf32);
void run_conv(const Conv& conv, bool use_tf32);

// Element i of `to` becomes that of the sources combined, one after the other, each result rounded.
void reduce_element(Reduction reduction, DType dtype, const std::vector<const std::byte*>& sources,
                    int64_t i, std::byte* to);

}  // namespace meshtrain::gpu
