// The steps that a run will take, known before it begins: their programs share a GPU's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "engine/setup.h"

namespace meshtrain {

// What a program is made for.
struct StepBatch {
  StepKind kind = StepKind::kTrain;
  int64_t batch = 0;
  auto operator<=>(const StepBatch&) const = default;
};

// Samples of the datasets that a run trains on, validates with and is evaluated on; 0: it does not.
struct RunSamples {
  int64_t train = 0, validation = 0, evaluated = 0;
};

// Each once, in the order in which they come first: of fit with its validation, then of an
// evaluation; last, smaller batches included. No batch has more than `most` samples, whatever the
// config says.
std::vector<StepBatch> steps_of_run(const Config& config, const RunSamples& samples, int64_t most);

}  // namespace meshtrain
