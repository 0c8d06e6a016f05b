// Lowers all steps of a program.
#pragma once

#include "exec/lower.h"

namespace meshtrain {

// Returns for each step the arena buffers that it reads last. A step reads each shard of such a
// buffer for exactly one shard of its own.
std::vector<std::vector<int>> last_reads(const Program& program);

// Returns the specs of all steps except the prologue, with last reads and row fusions.
KernelSpecs lower_all_steps(const Program& program, BufferMemory memory);
// As GPUs take them.
KernelSpecs lower_gpu_steps(const Program& program, BufferMemory memory);

}  // namespace meshtrain
