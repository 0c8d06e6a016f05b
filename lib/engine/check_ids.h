// Labels and ids of the data of a run beside the model: classes that it can predict, rows of its
// embeddings.
#pragma once

#include "engine/run_data.h"

namespace meshtrain {

// Checks that the ids of an Input that feeds an Embedding are rows of it (E314). JAX, and Keras on
// JAX, would return arbitrary rows. Throws ConfigError.
void check_input_ids(const Setup& setup, Dataset& dataset);

// The same for all data of a run. Where a loss takes class ids, every id must also be one that the
// model can predict (E312). Labels of binary crossentropy, one number
// per sample, must be in [0, 1] (E312). Throws ConfigError.
void check_run_ids(const Setup& setup, RunData& data);

}  // namespace meshtrain
