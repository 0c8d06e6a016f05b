// How much GPU memory a program needs and how many kernels it launches, before anything is
// allocated. Needs no GPU.
#pragma once

#include "exec/step_memory.h"
#include "ir/program.h"

namespace meshtrain {

// Returns the bytes that a program holds as long as it exists: constants and slots.
int64_t gpu_own_bytes(const Program& program);

// Step memory at invalid addresses, for measuring how much programs would take.
StepMemory imagined_step_memory();

// Takes from such memory as much as the executor would from the device's. `with_scratch` includes
// scratch of steps and buffers for messages; this takes as long as preparing the program.
void take_gpu_memory(const Program& program, StepMemory& memory, bool with_scratch);

// Returns the matmuls, convolutions and kernels that one training step launches, without
// communication. Takes as long as preparing the program.
int64_t gpu_launches(const Program& program);

}  // namespace meshtrain
