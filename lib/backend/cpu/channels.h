// Per-channel sums over tensors whose last dimension is the channel.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

KernelList make_channel_sums(DType dtype, int64_t rows, int64_t channels,
                             const std::vector<ChannelSumsJob>& jobs, ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
