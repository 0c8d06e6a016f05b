// Row fusion: steps that a GPU computes together, a row of their arrays at a time: softmax,
// normalization within samples, cross-entropy, forward and backward. Groups are found by reads and
// writes, not by names.
#pragma once

#include "ir/program.h"

namespace meshtrain {

// A group has reductions of arrays of one shape over the same dimensions, which include the last.
// It also has elementwise steps, broadcasts, reshapes and one_hots on arrays of that shape, or on
// one number a row. Each step reads a result of the group, or a large array that the group reads,
// or feeds the group. Its steps are moved behind the first of them and numbered
// (ProgramStep::row_fusion); then memory is planned again, because operands of a group must not be
// overwritten before its end. For programs of GPUs; one with fixed reductions is unchanged.
void fuse_rows(Program& program);

}  // namespace meshtrain
