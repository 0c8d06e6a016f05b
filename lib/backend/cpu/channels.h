// Per-channel sums over tensors whose last dimension is the channel.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// out (2, channels) float64: the sums of u and of u * v over all rows of all parts.
struct ChannelSumsJob {
  struct Part {
    const std::byte* u = nullptr;
    const std::byte* v = nullptr;  // may be u
  };
  std::vector<Part> parts;  // `rows` x `channels` each
  std::byte* out = nullptr;
};
KernelList make_channel_sums(DType dtype, int64_t rows, int64_t channels,
                             const std::vector<ChannelSumsJob>& jobs, ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
