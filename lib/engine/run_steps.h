// The kinds of steps of a run, computed before it begins: their programs share GPU memory.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "engine/setup.h"

namespace meshtrain {

// The kind and the batch size of a program.
struct StepBatch {
  StepKind kind = StepKind::kTrain;
  int64_t batch = 0;
  auto operator<=>(const StepBatch&) const = default;
};

// Numbers of samples for training, validation and evaluation; 0: the run has none.
struct RunSamples {
  int64_t train = 0, validation = 0, evaluated = 0;
};

// Returns each kind of step once, in order of first use: fit with validation, then evaluation;
// smaller last batches included. Batches are limited to `most` samples.
std::vector<StepBatch> steps_of_run(const Config& config, const RunSamples& samples, int64_t most);

}  // namespace meshtrain
