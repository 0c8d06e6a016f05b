// Attention, its gradient, and rotary positions (ir/ops/attention.cc).
#include "exec/lower.h"
#include "ir/ops/attention.h"

namespace meshtrain {
namespace {

using Operand = AttentionOperand;

// What all shards share.
AttentionShape attention_shape(const StepContext& context, const AttentionOperands& at) {
  const Buffer &q = context.input(0), &k = context.input(1), &v = context.input(2);
  AttentionShape out;
  out.dtype = q.dtype;
  out.batch = q.shape[0];
  out.queries = q.shape[1];
  out.heads = q.shape[2];
  out.head_size = q.shape[3];
  out.keys = k.shape[1];
  out.groups = k.shape[2];
  out.value_size = v.shape[3];
  out.scale = context.attr_double("scale");
  out.causal = context.attr_int("causal") != 0;
  out.window = context.attr_int("window");
  if (const int mask = at[Operand::kMask]; mask >= 0) {
    const Shape& shape = context.input(static_cast<size_t>(mask)).shape;
    out.mask_has_batch = shape[0] > 1;
    out.mask_has_heads = shape[1] > 1;
  }
  out.global_heads = q.global_shape[2];
  out.global_queries = q.global_shape[1];
  out.rate = context.attr_double("rate");
  out.seed = static_cast<uint64_t>(context.attr_int("seed"));
  out.stream = static_cast<uint32_t>(context.attr_int("stream"));
  return out;
}

AttentionShape shape_of_shard(const StepContext& context, AttentionShape shape, int64_t shard) {
  const std::vector<int64_t> start = context.start(context.input(0), shard);
  shape.batch_start = start[0];
  shape.query_start = start[1];
  shape.head_start = start[2];
  return shape;
}

const std::byte* optional_shard(const StepContext& context, const AttentionOperands& at,
                                Operand operand, int64_t shard) {
  const int i = at[operand];
  return i < 0 ? nullptr : context.input_shard(static_cast<size_t>(i), shard);
}

AttentionMasks masks_of_shard(const StepContext& context, const AttentionOperands& at,
                              int64_t shard) {
  const auto get = [&](Operand operand) { return optional_shard(context, at, operand, shard); };
  return {get(Operand::kStep),          get(Operand::kQueryMask),   get(Operand::kKeyMask),
          get(Operand::kQuerySegments), get(Operand::kKeySegments), get(Operand::kQueryPositions),
          get(Operand::kKeyPositions),  get(Operand::kMask)};
}

void lower_attention(StepContext& context) {
  const AttentionOperands at(context.attr_string("operands"), kAttentionInputs);
  const AttentionShape shape = attention_shape(context, at);
  context.add(BeginGroup{});
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    context.add(AttentionSpec{shape_of_shard(context, shape, p), context.input_shard(0, p),
                              context.input_shard(1, p), context.input_shard(2, p),
                              masks_of_shard(context, at, p), context.output_shard(0, p),
                              context.output_shard(1, p)});
  }
  context.add(EndGroup{});
}

void lower_attention_grad(StepContext& context) {
  const AttentionOperands at(context.attr_string("operands"), kAttentionGradInputs);
  const AttentionShape shape = attention_shape(context, at);
  context.add(BeginGroup{});
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    const auto input = [&](size_t i) { return context.input_shard(i, p); };
    context.add(AttentionGradSpec{shape_of_shard(context, shape, p), input(0), input(1), input(2),
                                  input(3), input(4), input(5),
                                  optional_shard(context, at, Operand::kLseCotangent, p),
                                  masks_of_shard(context, at, p), context.output_shard(0, p),
                                  context.output_shard(1, p), context.output_shard(2, p)});
  }
  context.add(EndGroup{});
}

void lower_rotary(StepContext& context) {
  const Buffer &x = context.input(0), &angles = context.input(1);
  const RotaryShape shape{x.dtype,
                          x.shape[0],
                          x.shape[1],
                          x.shape[2],
                          x.shape[3],
                          angles.shape[0] > 1,
                          context.attr_int("inverse") != 0};
  context.add(BeginGroup{});
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    context.add(RotarySpec{shape, context.input_shard(0, p), context.input_shard(1, p),
                           context.input_shard(2, p), context.output_shard(0, p)});
  }
  context.add(EndGroup{});
}

}  // namespace

std::vector<OpLowering> attention_lowerings() {
  return {
      {"attention", lower_attention},
      {"attention_grad", lower_attention_grad},
      {"rotary", lower_rotary},
  };
}

}  // namespace meshtrain
