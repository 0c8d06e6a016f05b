// Sums, maxima and minima over dimensions.
#pragma once

#include "backend/cpu/kernel.h"
#include "backend/cpu/kernel_table.h"

namespace meshtrain::cpu {

// `out` is contiguous, of x's shape without the dimensions marked in `reduced` (or with size 1
// there). Intermediate results take memory from `scratch`.
KernelList make_reduce(Reduction reduction, const View& x, const std::vector<bool>& reduced,
                       const View& out, ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
