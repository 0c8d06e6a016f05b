// Models with stateful layers take batches of one size, the `batch_size` of their Inputs: which
// incomplete batches are left out, and which are refused before the first step.
#pragma once

#include "config/config.h"
#include "engine/run_data.h"

namespace meshtrain {

// Whether validation and evaluation leave out an incomplete last batch, as training does: with
// `remainder: drop`, where the model is stateful. Other models compute it.
bool drops_last_test(const Config& config);

// Reports, for each part of the data of a run (without `fit`: of an evaluation), a batch that a
// stateful layer does not take (E120) and a part without a whole batch (E316). Warns (W318) of
// samples that validation or evaluation leave out.
void check_state_batches(const Config& config, const RunData& data, bool fit, DataPart evaluated,
                         Diagnostics& diagnostics);

// The same for samples to predict, of which none is left out. Throws ConfigError E120 at `loc`.
void check_predicted_batches(const Config& config, const Dataset& samples, const SourceLoc& loc);

}  // namespace meshtrain
