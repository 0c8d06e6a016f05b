// Row fusion (backend/fused_rows.h) as one launch in which the same threads compute a row
// throughout.
//
// `lanes` threads of a block compute a row; lane l has its columns l, l + lanes, ... . Each reduces
// its columns into four values as a reduction does (reduction.h) and combines these in the same
// tree. When reduce() uses as many lanes in one part, a sum has the same bits. The order depends on
// nothing but the numbers of rows and columns and what is computed.
//
// Values are kept in registers when a lane has few columns. Otherwise every reduction recomputes
// them from the operands, which are then in the caches.
#pragma once

#include "backend/fused_rows.h"
#include "backend/gpu/command.h"

namespace meshtrain::gpu {

struct RowPlan : FusedRows {
  unsigned lanes = 1;
  int held = 0;  // columns of a lane that are kept in registers; 0: none
};

// Returns nothing when the calls cannot be one kernel, or when that would be slower or less exact.
// The calls must outlive the plan.
std::optional<RowPlan> plan_rows(const std::vector<RowCall>& calls,
                                 const std::vector<const std::byte*>& read_later);
Launch row_launch(const RowPlan& plan);
std::vector<Access> row_accesses(const RowPlan& plan);

}  // namespace meshtrain::gpu
