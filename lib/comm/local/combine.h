// Collectives between the devices of one process: each part of a result is copied from the shard
// that holds it, or combined from the shards that hold its terms, in device order.
#pragma once

#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cpu/kernel_table.h"

namespace meshtrain::local {

// All regions of one or more results, as one kernel; regions must not overlap. The list must not be
// empty.
cpu::KernelPtr make_combine(Reduction reduction, DType dtype, std::vector<Region> regions);

}  // namespace meshtrain::local
