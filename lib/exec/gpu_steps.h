// The steps of a program as commands of a GPU.
#pragma once

#include "backend/gpu/maker.h"
#include "exec/prepare.h"

namespace meshtrain {

// By step: buffers of the arena that it reads, each piece for one piece of its own, and that
// nothing reads afterwards.
std::vector<std::vector<int>> last_reads(const Program& program);

// `maker` gets what all steps compute, prologue excepted, and is told of the last reads.
void add_gpu_steps(const Program& program, const BufferMemory& memory, gpu::GpuMaker& maker);

}  // namespace meshtrain
