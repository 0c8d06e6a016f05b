// Normalization layers without given statistics, and Discretization layers without boundaries, take
// them from the training data, as Keras' adapt() does before fit().
#pragma once

#include "data/dataset.h"
#include "engine/step_runner.h"
#include "nn/model.h"

namespace meshtrain {

// Adds E124 for every layer whose input is neither the value of an Input nor that value behind
// Rescaling layers: the data do not have its statistics. For subcommands that train.
void check_adaptation(const Model& model, Diagnostics& diagnostics);

// Mean and population variance over all samples of `train`, in float64 and in file order: the same
// on every mesh. Written to the layers' weights `mean`, `variance` and `count` (samples), or
// `bin_boundaries`. Throws ConfigError E124 for fewer values than bins.
void adapt_to_data(const Model& model, const Dataset& train, StepRunner& runner);

}  // namespace meshtrain
