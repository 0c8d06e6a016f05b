// The static memory plan: an offset in one arena for every buffer, from liveness.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"

namespace meshtrain {

// Sets Buffer::offset and Program::arena_bytes. Buffers that are alive together never overlap,
// except that an elementwise result may reuse the memory of an operand that dies in the same step
// (equal type and sharding). Inputs, outputs and constants keep their memory for the whole step.
// (An optimizer's update counts as elementwise.) Values that only the steps of one row fusion read
// (ProgramStep::row_fusion) have no memory. Best fit over the steps in order; cost O(steps log
// steps).
void plan_memory(Program& program);

// Returns the arena bytes of a device of a real mesh, which holds one shard of every buffer.
int64_t arena_bytes_per_device(const Program& program);

// Returns for each buffer whether it is in the arena while the steps run.
std::vector<bool> have_memory(const Program& program);

// Returns whether the kernel of `step` may write a result over an operand of equal type and
// sharding.
bool may_overwrite_operand(const ProgramStep& step);

// Describes the first pair of buffers that are alive together and overlap without being an in-place
// pair; empty when the plan is sound. For tests and --dump-ir.
std::string memory_plan_problem(const Program& program);

}  // namespace meshtrain
