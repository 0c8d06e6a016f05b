// Checks that a run on the processor fits into the memory of its host before anything is allocated.
#pragma once

#include <functional>
#include <vector>

#include "engine/run_steps.h"
#include "engine/setup.h"

namespace meshtrain {

// Checks the variables of this process: weights, optimizer state, metrics, and the copy of the
// largest weight that is drawn. `available`: bytes that may be allocated; 0 when unknown, which
// passes. Throws ConfigError E631 (exit 4) with the bytes needed and free, the largest variables
// with the lines of their layers, and the number of parameters that fits.
void check_host_variables(const Setup& setup, int64_t available);

// Adds the same as a W631: a config may be written for another machine. Passes for GPUs and for
// hardware on paper.
void warn_of_host_memory(const Setup& setup, Diagnostics& warnings);

// Checks the memory that the programs of these steps share, beyond `existing` bytes of it. Throws
// as above; the help names the largest batch that fits, if any.
void check_host_steps(const Setup& setup, const std::vector<StepBatch>& steps,
                      const std::vector<Program>& programs, int64_t existing, int64_t available);

}  // namespace meshtrain
