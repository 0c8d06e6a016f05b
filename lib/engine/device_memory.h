// Whether a run fits on a GPU, asked before anything of it is allocated.
#pragma once

#include <functional>
#include <vector>

#include "backend/gpu/device.h"
#include "engine/run_steps.h"
#include "engine/setup.h"

namespace meshtrain {

// What is left for the model and its steps of the memory that is free. The rest is for what the
// libraries take: up to four workspaces at a time (of a convolution up to 512 MiB each), turned
// filters, compiled kernels and graphs; before the groups of a run are joined (join_devices.h)
// NCCL's buffers, too. A 24th of the GPU's memory, 64 MiB at least, 4 GiB at most.
int64_t room_on(gpu::Device& device);

// The variables of the model, as far as this process has them: weights, optimizer state, metrics.
// Throws ConfigError E630 (exit 4) with what is needed and what is free, the largest of them with
// their layouts, and a change with which variables and a train step fit, where there is one.
void check_variables_fit(const Setup& setup, gpu::Device& device);

// The steps of the same run where no batch has more samples than `most`.
using StepsUpTo = std::function<std::vector<StepBatch>(int64_t most)>;

// What the programs of all these steps need besides: the memory that they share, constants, slots
// for batches. The variables must be allocated. `blocks`: what there is of the shared memory;
// returns what there will be (StepMemory). Throws as above; the help names the largest batch that
// fits, where one does.
std::vector<int64_t> check_steps_fit(const Setup& setup, const std::vector<StepBatch>& steps,
                                     const std::vector<Program>& programs,
                                     const std::vector<int64_t>& blocks,
                                     const StepsUpTo& steps_up_to, gpu::Device& device);

}  // namespace meshtrain
