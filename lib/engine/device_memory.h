// Checks that a run fits on a GPU before anything is allocated.
#pragma once

#include <functional>
#include <vector>

#include "backend/gpu/device.h"
#include "engine/run_steps.h"
#include "engine/setup.h"

namespace meshtrain {

// Returns the bytes of free GPU memory for the model and its steps. The rest is a reserve for
// libraries: up to four workspaces at a time (up to 512 MiB each for a convolution), transposed
// filters, compiled kernels, graphs and, before join_groups(), NCCL's buffers. The reserve is a
// 24th of the GPU's memory, at least 64 MiB and at most 4 GiB.
int64_t room_on(gpu::Device& device);

// Checks the variables of this process: weights, optimizer state, metrics. Throws ConfigError E630
// (exit 4) with the bytes needed and free, the largest variables with their layouts and, where
// there is one, a change of the config with which the variables and a train step fit.
void check_variables_fit(const Setup& setup, gpu::Device& device);

// The steps of the same run where no batch has more samples than `most`.
using StepsUpTo = std::function<std::vector<StepBatch>(int64_t most)>;

// Checks what the programs of these steps need beside variables: shared step memory, constants,
// slots for batches. The variables must be allocated. `blocks`: the current blocks of StepMemory;
// returns the blocks with these programs. Throws as above; the help names the largest batch that
// fits, if any.
std::vector<int64_t> check_steps_fit(const Setup& setup, const std::vector<StepBatch>& steps,
                                     const std::vector<Program>& programs,
                                     const std::vector<int64_t>& blocks,
                                     const StepsUpTo& steps_up_to, gpu::Device& device);

}  // namespace meshtrain
