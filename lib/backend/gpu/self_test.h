// Communicator self-test: communication with known results, before training depends on it.
#pragma once

#include <vector>

#include "backend/gpu/device.h"

namespace meshtrain::gpu {

// Collective, after Device::join: every device sends a pattern to every other. Throws
// RuntimeFailure (exit 8), which names the rank with wrong data.
void check_exchange(Device& device, int rank, int size);

// Collective: checks sums, maxima, an all-gather and a reduce-scatter of about `elements` elements
// over `ranks`, which includes this process. Throws RuntimeFailure (exit 8).
//
// NCCL allocates memory when the first collective of a kind and size connects a group. kFewElements
// are more than one packet of any transport; kManyElements (8 MiB) is the size of gradient buckets.
constexpr int64_t kFewElements = 5001, kManyElements = int64_t{2} << 20;
void check_collectives(Device& device, int rank, const std::vector<int>& ranks,
                       int64_t elements = kFewElements);

}  // namespace meshtrain::gpu
