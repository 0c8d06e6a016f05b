// Row fusion: steps that are computed together, a row of their arrays at a time: softmax,
// normalization within samples, cross-entropy, forward and backward. Groups are found by reads and
// writes, not by names.
#pragma once

#include "ir/program.h"

namespace meshtrain {

enum class RowTarget { kGpu, kCpu };

// A group has reductions of arrays of one shape over the same dimensions, which include the last.
// It also has elementwise steps, broadcasts, reshapes and one_hots on arrays of that shape, or on
// one number a row. Each step reads a result of the group, or a large array that the group reads,
// or feeds the group. Its steps are moved behind the first of them and numbered
// (ProgramStep::row_fusion); then memory is planned again, because operands of a group must not be
// overwritten before its end. One with fixed reductions is unchanged.
//
// A processor takes contiguous rows that fit into a cache, without one_hots and 16 bits:
// these are rounded wherever they are stored, and groups differ between meshes.
void fuse_rows(Program& program, RowTarget target);

}  // namespace meshtrain
