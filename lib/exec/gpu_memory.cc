#include "exec/gpu_memory.h"

#include <algorithm>

#include "backend/gpu/lowering.h"
#include "backend/gpu/merge_launches.h"
#include "exec/all_steps.h"
#include "exec/gpu_slots.h"
#include "exec/partial_sum_fusion.h"

namespace meshtrain {
namespace {

// An address that is never dereferenced, of a variable or (kNone) of the constants, far from all
// others.
std::byte* nobodys(int variable) {
  return reinterpret_cast<std::byte*>((int64_t{variable} + 2) << 44);
}

// Returns the commands of all steps except the prologue. Takes the scratch of both from `share`.
std::vector<gpu::Command> prepare(const Program& program, std::byte* arena,
                                  std::byte* small_buffers, const StepMemory::Share& share) {
  BufferMemory where;
  for (const Buffer& buffer : program.buffers) {
    where.bases.push_back(buffer.variable == kNone ? arena + buffer.offset
                                                   : nobodys(buffer.variable));
  }
  small_buffer_places(program).move(small_buffers, where.bases);
  constant_places(program).move(nobodys(kNone), where.bases);
  where.fused_sums = find_fused_sums(program);
  where.has_gathers = true;
  const auto commands_of = [&share](KernelSpecs specs) {
    gpu::GpuLowering lowering([own = share](int64_t bytes) mutable { return own.take(bytes); });
    lowering.lower(std::move(specs));
    return lowering.take();
  };
  commands_of(lower_steps(program, program.prologue, where));
  return commands_of(lower_gpu_steps(program, where));
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
  std::byte* const small_buffers = share.take(small_buffer_places(program).bytes);
  if (with_scratch)
    prepare(program, arena, small_buffers, share);
}

int64_t gpu_launches(const Program& program) {
  StepMemory memory = imagined_step_memory();
  StepMemory::Share share(memory);
  std::byte* const arena = share.take(program.arena_bytes);
  std::byte* const small_buffers = share.take(small_buffer_places(program).bytes);
  const gpu::MergedLaunches merged =
      gpu::merge_launches(prepare(program, arena, small_buffers, share));
  return std::count_if(merged.calls.begin(), merged.calls.end(),
                       [](const gpu::Call& call) { return !gpu::communicates(call.what); });
}

}  // namespace meshtrain
