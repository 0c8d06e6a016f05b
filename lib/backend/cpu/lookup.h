// Lookups by index and their transposes, on one piece of a possibly split vocabulary
// (ir/ops/gather.cc says what a piece computes).
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// out (num_ids, row_elements) = rows of table (rows, row_elements) at clamp(id, 0, global_rows -
// 1); zeros where that row is in another piece.
KernelPtr make_gather_rows(const LookupShape& shape, const std::byte* table, const std::byte* ids,
                           std::byte* out);
// out (rows, row_elements) = zeros plus updates (num_ids, row_elements) at their ids, in order; ids
// that are not in the piece are dropped.
KernelPtr make_scatter_add_rows(const LookupShape& shape, const std::byte* updates,
                                const std::byte* ids, std::byte* out);
// out (num_ids, rows): 1 at id - start where that is in the piece, else 0.
KernelPtr make_one_hot(const LookupShape& shape, const std::byte* ids, std::byte* out);

}  // namespace meshtrain::cpu
