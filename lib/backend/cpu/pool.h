// Pools and their gradients over images with channels last; those of 16 bits are added up in
// float32.
#pragma once

#include <array>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

KernelList make_pool(PoolOp op, const PoolShape& shape, std::vector<PoolJob> jobs,
                     ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
