#include "exec/gpu_slots.h"

#include <algorithm>

#include "exec/memory.h"

namespace meshtrain {
namespace {

constexpr int kMostSteps = 32;                    // of a run
constexpr int64_t kMostNodes = 8192;              // of a graph, about: it takes time to make
constexpr int64_t kMostFeed = int64_t{64} << 20;  // bytes of all large slots together
constexpr int64_t kLargestSlotOutput = int64_t{64} << 10;  // bytes of all outputs of a step
constexpr int64_t kSmallBuffer = int64_t{16} << 10;
constexpr int64_t kScalarRoom = 2;  // in numbers of 32 bits

}  // namespace

GpuSlots plan_slots(const Program& program) {
  GpuSlots slots;
  for (const Program::NamedBuffer& input : program.inputs) {
    const ShardMap map = shard_map(program, input.buffer);
    const bool is_scalar = program.buffers[input.buffer].global_shape.empty();
    const int64_t bytes = map.total_bytes(), rows = is_scalar ? kScalarRoom : map.num_rows();
    const int64_t row_bytes = rows * static_cast<int64_t>(sizeof(int32_t));
    GpuSlots::Place& place = slots.inputs.emplace_back(GpuSlots::Place{rows, slots.small_bytes});
    slots.small_bytes += aligned_bytes(row_bytes);
    if (bytes > row_bytes) {
      place.large = slots.large_bytes;
      slots.large_bytes += aligned_bytes(bytes);
    }
  }
  for (const Program::NamedBuffer& output : program.outputs) {
    slots.outputs.push_back(slots.result_bytes);
    slots.result_bytes += aligned_bytes(shard_map(program, output.buffer).total_bytes());
  }
  if (slots.result_bytes > kLargestSlotOutput) {
    slots.outputs.clear();
    slots.result_bytes = 0;
  } else {
    const int64_t most = kMostFeed / GpuSlots::kHalves / std::max<int64_t>(slots.large_bytes, 1);
    const int64_t by_nodes = kMostNodes / std::max<int64_t>(std::ssize(program.steps), 1);
    slots.max_steps =
        static_cast<int>(std::clamp<int64_t>(std::min(most, by_nodes), 1, kMostSteps));
  }
  return slots;
}

BufferPlaces small_buffer_places(const Program& program) {
  const BufferPlaces constants = constant_places(program);
  BufferPlaces places{std::vector<int64_t>(program.buffers.size(), kNone)};
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    const bool is_small = buffer.shard_bytes * buffer.num_shards <= kSmallBuffer;
    if (buffer.variable == kNone && constants.offsets[b] == kNone && is_small)
      places.add(buffer, static_cast<int>(b));
  }
  return places;
}

}  // namespace meshtrain
