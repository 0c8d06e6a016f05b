// Communication whose result is known, tried before anything depends on it.
#pragma once

#include <vector>

#include "backend/gpu/device.h"

namespace meshtrain::gpu {

// Each device of `size` sends each other bytes of its own. Collective, after Device::join. Throws
// RuntimeFailure (exit 8) that names the rank from which something else came.
void check_exchange(Device& device, int rank, int size);

// Sums, maxima, an all-gather and a reduce-scatter over these ranks, this one among them. Throws
// RuntimeFailure (exit 8).
void check_collectives(Device& device, int rank, const std::vector<int>& ranks);

}  // namespace meshtrain::gpu
