#include "exec/gpu_memory.h"

#include "exec/gpu_slots.h"
#include "exec/gpu_steps.h"
#include "exec/presum.h"

namespace meshtrain {
namespace {

// An address that nobody follows, of a variable or (kNone) of the constants: far from all others.
std::byte* nobodys(int variable) {
  return reinterpret_cast<std::byte*>((int64_t{variable} + 2) << 44);
}

}  // namespace

int64_t gpu_own_bytes(const Program& program) {
  return constant_places(program).bytes + plan_slots(program).total_bytes();
}

StepMemory imagined_step_memory() {
  return StepMemory([next = int64_t{1} << 41](int64_t bytes) mutable {
    std::byte* const at = reinterpret_cast<std::byte*>(next);
    next += bytes;
    return std::shared_ptr<std::byte>(at, [](std::byte*) {});
  });
}

void take_gpu_memory(const Program& program, StepMemory& memory, bool with_scratch) {
  StepMemory::Share share(memory);
  std::byte* const arena = share.take(program.arena_bytes);
  const BufferPlaces small = small_buffer_places(program), constants = constant_places(program);
  std::byte* const small_buffers = share.take(small.bytes);
  if (!with_scratch)
    return;
  BufferMemory where;
  for (const Buffer& buffer : program.buffers) {
    where.bases.push_back(buffer.variable == kNone ? arena + buffer.offset
                                                   : nobodys(buffer.variable));
  }
  small.move(small_buffers, where.bases);
  constants.move(nobodys(kNone), where.bases);
  where.presummed = find_presummed(program);
  const auto make_maker = [&share] {
    return gpu::GpuMaker([own = share](int64_t bytes) mutable { return own.take(bytes); });
  };
  gpu::GpuMaker prologue = make_maker(), steps = make_maker();
  for (const ProgramStep& step : program.prologue)
    prepare_step(program, step, where, prologue);
  add_gpu_steps(program, where, steps);
}

}  // namespace meshtrain
