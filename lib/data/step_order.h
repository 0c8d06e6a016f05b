// Samples whose steps come in the head-tail order (base/head_tail.h), for context parallelism.
#pragma once

#include "data/dataset.h"

namespace meshtrain {

// Puts the steps of all arrays (samples, steps, ...) into the order of `shards`. Throws ConfigError
// at `loc`: E113 where 2 `shards` do not divide the steps of the first input, E324 for an array of
// other steps. Weights (samples,) stay.
void order_steps(Dataset& dataset, int64_t shards, const SourceLoc& loc);

// Returns outputs (samples, steps, ...) with their steps in order again; of one shard, any outputs.
HostTensor restore_steps(HostTensor outputs, int64_t shards);

}  // namespace meshtrain
