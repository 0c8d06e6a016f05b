// The calls of a plan one after the other, each between two events.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/prepared.h"

namespace meshtrain::cuda {

// Enqueues all calls of the steps on the work stream, communication too, and waits for the last.
// The times are the driver's: without overlap, and with the launch of each call where the host is
// slower than the device.
std::vector<gpu::CallTime> run_timed(Core& core, const Prepared& prepared,
                                     std::span<const gpu::Window> windows, int first, int steps);

}  // namespace meshtrain::cuda
