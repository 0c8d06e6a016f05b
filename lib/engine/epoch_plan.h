// Which batches of the data an epoch trains on.
#pragma once

#include <cstdint>

#include "config/config.h"
#include "data/dataset.h"

namespace meshtrain {

// The batches of epoch `epoch` (from 0). With steps_per_epoch, the batches of one pass over the
// data are divided among several epochs, and the last of these is shorter: 5 batches at 3 steps an
// epoch are 3, 2, 3, 2, ... A pure function of the epoch.
struct EpochPlan {
  int64_t pass = 0;         // over the data: decides the order of samples
  int64_t first_batch = 0;  // in that pass
  int64_t steps = 0;        // batches of this epoch
  int64_t target = 0;       // steps shown
  bool ran_out = false;     // ends short of steps_per_epoch
};
EpochPlan plan_epoch(const FitConfig& fit, int64_t num_batches, int64_t epoch);

// Batches of one pass over `num_samples`; the incomplete last one counts unless `drop_last`.
int64_t count_batches(int64_t num_samples, int64_t batch_size, bool drop_last);

// Of validations: that of training where the config gives none.
int64_t validation_batch_size(const FitConfig& fit);

// Throws ConfigError E316 when dropping the incomplete batch leaves nothing. Trainer::fit calls it
// first; a subcommand may call it before it writes any file.
void check_batches(const Config& config, const Dataset& train);

// Warns (W316) of a batch size that somebody wrote and that is larger than the data.
void warn_of_batch(const FitConfig& fit, const Dataset& train, Diagnostics& warnings);

}  // namespace meshtrain
