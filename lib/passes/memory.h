// The static memory plan: an offset in one arena for every buffer, from liveness.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"

namespace meshtrain {

// Sets Buffer::offset and Program::arena_bytes. Buffers that are alive together never overlap,
// except that an elementwise result may take the place of an operand that dies in the same step
// (equal type and sharding). Inputs, outputs and constants keep their place for the whole step.
// (An optimizer's update counts as elementwise.) What only the steps of one row group read
// (ProgramStep::rows) has no memory. Best fit over the steps in order; cost O(steps log
// steps).
void plan_memory(Program& program);

// The arena of a device of a real mesh, which holds one shard of every buffer, planned likewise.
int64_t arena_bytes_per_device(const Program& program);

// For each buffer whether it is anywhere in the arena while the steps run.
std::vector<bool> have_memory(const Program& program);

// Whether the kernel of `step` may write a result over an operand of equal type and sharding.
bool may_overwrite_operand(const ProgramStep& step);

// The first pair of buffers that are alive together and share bytes without being an in-place pair,
// in words; empty when the plan is sound. For tests and --dump-ir.
std::string memory_plan_problem(const Program& program);

}  // namespace meshtrain
