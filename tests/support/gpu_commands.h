// The commands of a step on a GPU, for tests that do not run them.
#pragma once

#include <vector>

#include "backend/gpu/lowering.h"
#include "exec/all_steps.h"
#include "exec/partial_sum_fusion.h"

namespace meshtrain::test {

// The commands of the program's steps, prologue excepted, at addresses that nobody follows.
inline std::vector<gpu::Command> gpu_commands(const Program& program) {
  std::byte* next = reinterpret_cast<std::byte*>(int64_t{1} << 44);
  const auto take = [&next](int64_t bytes) {
    std::byte* const taken = next;
    next += (bytes + 255) / 256 * 256;
    return taken;
  };
  BufferMemory memory;
  for (const Buffer& buffer : program.buffers)
    memory.bases.push_back(take(buffer.shard_bytes * buffer.num_shards));
  memory.fused_sums = find_fused_sums(program);
  gpu::GpuLowering lowering(take);
  lowering.lower(lower_gpu_steps(program, memory));
  return lowering.take();
}

}  // namespace meshtrain::test
