// Whether a program fits on a GPU, asked before anything of it is allocated.
#pragma once

#include "backend/gpu/device.h"
#include "train/setup.h"

namespace meshtrain {

// The variables of the model, as far as this process has them: weights, optimizer state, metrics.
// Throws ConfigError E630 (exit 4) with what is needed and what is free, the largest of them with
// their layouts, and changes that would help.
void check_variables_fit(const Setup& setup, gpu::Device& device);

// What a program needs besides: its arena, and the slots that batches are given in. The variables
// must be allocated. As above; the help names the largest batch that fits, where one does.
void check_program_fits(const Setup& setup, StepKind kind, int64_t batch, const Program& program,
                        gpu::Device& device);

}  // namespace meshtrain
