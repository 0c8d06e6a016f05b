// Pools and their gradients over images with channels last, float32 and float64.
#pragma once

#include <array>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

KernelPtr make_pool(PoolOp op, const PoolShape& shape, std::vector<PoolJob> jobs);

}  // namespace meshtrain::cpu
