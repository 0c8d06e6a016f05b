// What a program takes of a GPU's memory and what it starts there, asked before anything is
// allocated. Needs no GPU.
#pragma once

#include "exec/step_memory.h"
#include "ir/program.h"

namespace meshtrain {

// For itself, as long as it exists: constants and slots.
int64_t gpu_own_bytes(const Program& program);

// Memory at addresses that nobody follows, for asking how much programs would take.
StepMemory imagined_step_memory();

// Takes of such memory what its executor would of the device's. `with_scratch`: also what steps
// need for intermediate results, and for what goes to other processes and comes from them; this
// takes as long as preparing the program.
void take_gpu_memory(const Program& program, StepMemory& memory, bool with_scratch);

// Products, convolutions and kernels that a step starts, without communication: some steps of a
// program are several of them, most are part of one. Takes as long as preparing the program.
int64_t gpu_launches(const Program& program);

}  // namespace meshtrain
