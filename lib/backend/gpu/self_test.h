// Communication whose result is known, tried before anything depends on it.
#pragma once

#include <vector>

#include "backend/gpu/device.h"

namespace meshtrain::gpu {

// Each device of `size` sends each other bytes of its own. Collective, after Device::join. Throws
// RuntimeFailure (exit 8) that names the rank from which something else came.
void check_exchange(Device& device, int rank, int size);

// Sums, maxima, an all-gather and a reduce-scatter of about so many elements over these ranks, this
// one among them. Throws RuntimeFailure (exit 8).
//
// NCCL takes memory when the first collective of a kind and size connects a group. Few are more
// than one packet of any transport; many, 8 MiB, are what sums of gradients connect.
constexpr int64_t kFewElements = 5001, kManyElements = int64_t{2} << 20;
void check_collectives(Device& device, int rank, const std::vector<int>& ranks,
                       int64_t elements = kFewElements);

}  // namespace meshtrain::gpu
