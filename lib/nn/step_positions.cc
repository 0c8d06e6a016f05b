#include "nn/step_positions.h"

#include "base/head_tail.h"

namespace meshtrain {

namespace {

// As head_tail_step(), of all places at once: places are the last dimension of `shape`.
ValueId ordered_steps(const CallContext& context, const Shape& shape) {
  Builder& b = context.builder;
  const auto shards = static_cast<double>(context.head_tail);
  const auto chunk = static_cast<double>(shape.back()) / (2 * shards);
  const DType f64 = DType::kFloat64;
  const ValueId place = b.iota(shape, static_cast<int>(shape.size()) - 1, f64);
  const ValueId shard = b.unary("floor", b.mul(b.add(place, 0.5), 1 / (2 * chunk)));
  const ValueId within = b.sub(place, b.mul(shard, 2 * chunk));
  const ValueId head = b.add(b.mul(shard, chunk), within);
  // (2 shards - 1 - shard) chunk + within - chunk
  const ValueId tail = b.add(b.sub(within, b.mul(shard, chunk)), (2 * shards - 2) * chunk);
  return b.select(b.binary("lt", within, b.constant(chunk, f64)), head, tail);
}

}  // namespace

ValueId step_positions(const CallContext& context, int64_t steps, int64_t start) {
  if (context.head_tail <= 1) {
    return kNone;
  }
  Builder& b = context.builder;
  const Builder::Scope scope = b.scope(kStepPositions);
  const ValueId step = ordered_steps(context, {steps});
  return b.cast(start == 0 ? step : b.add(step, static_cast<double>(start)), DType::kInt32);
}

ValueId key_positions(const CallContext& context, int64_t steps) {
  if (context.head_tail <= 1) {
    return kNone;
  }
  const Builder::Scope scope = context.builder.scope(kStepPositions);
  return context.builder.cast(ordered_steps(context, {1, steps}), DType::kInt32);
}

}  // namespace meshtrain
