#include "exec/gpu_memory.h"

#include "exec/gpu_steps.h"
#include "exec/presum.h"

namespace meshtrain {

int64_t gpu_scratch_bytes(const Program& program) {
  // Addresses that nobody follows.
  std::byte* next = reinterpret_cast<std::byte*>(int64_t{1} << 44);
  const auto take = [&next](int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    std::byte* const taken = next;
    next += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return taken;
  };
  BufferMemory memory;
  for (const Buffer& buffer : program.buffers)
    memory.bases.push_back(take(buffer.piece_bytes * buffer.num_pieces));
  memory.presummed = find_presummed(program);
  const std::byte* const begin = next;
  gpu::GpuMaker maker(take);
  for (const ProgramStep& step : program.prologue)
    prepare_step(program, step, memory, maker);
  add_gpu_steps(program, memory, maker);
  return next - begin;
}

}  // namespace meshtrain
