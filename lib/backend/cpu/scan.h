// What looks along one dimension: argmax, cumsum, top_k. Operands and results are contiguous; x is
// seen as (outer, size, inner).
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// out (outer, inner) int32: index of the first of the largest; a NaN counts as the largest.
KernelPtr make_argmax(const ScanShape& shape, const std::byte* x, std::byte* out);
// out (outer, size, inner): inclusive running sum.
KernelPtr make_cumsum(const ScanShape& shape, const std::byte* x, std::byte* out);
// values and int32 indices (outer, k) of the k largest of each row, largest first, the first of
// equals first; inner must be 1.
KernelPtr make_top_k(const ScanShape& shape, int64_t k, const std::byte* x, std::byte* values,
                     std::byte* indices);

}  // namespace meshtrain::cpu
