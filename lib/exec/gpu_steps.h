// The steps of a program for a GPU.
#pragma once

#include "exec/lower.h"

namespace meshtrain {

// By step: buffers of the arena that it reads, each shard for one shard of its own, and that
// nothing reads afterwards.
std::vector<std::vector<int>> last_reads(const Program& program);

// The specs of all steps, prologue excepted, with last reads and row regions.
KernelSpecs lower_gpu_steps(const Program& program, const BufferMemory& memory);

}  // namespace meshtrain
