// The kernels of convolutions in cuDNN's order.
#pragma once

#include <functional>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::cuda {

// The same commands, where convolutions have their kernels as (filters, cells..., channels /
// groups) in memory from `allocate`: copied there before, or from there afterwards.
std::vector<gpu::Command> turn_filters(const std::vector<gpu::Command>& commands,
                                       const std::function<std::byte*(int64_t bytes)>& allocate);

}  // namespace meshtrain::cuda
