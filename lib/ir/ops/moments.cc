// Per-channel sums and scales: what normalization over the batch is made of. Channels are the last
// dimension; n runs over all others.
//
//   op              operands                   result
//   moments         x (..., C)                 float64 (2, C): sum of x[n], sum of x[n]^2
//   channel_sums    u (..., C), v (..., C)     float64 (2, C): sum of u[n], sum of u[n] v[n]
//   channel_affine  x (..., C), a (C), b (C)   x * a + b, elementwise
//
// Sums are accumulated in float64 whatever the operands are, so that mean and variance may be taken
// from them without trouble. A batch split over devices leaves one small partial sum. The gradient
// of channel_affine by a and b is one channel_sums, one pass over x and the cotangent.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

Types infer_sums(const Node& node, Operands operands, size_t num_operands) {
  check_num_operands(node, operands, num_operands);
  const ValueType& x = operands[0];
  MESHTRAIN_OP_CHECK(node, is_floating(x.dtype) && !x.shape.empty() && operands.back() == x,
                     "operands {} {} and {} {}", dtype_name(x.dtype), shape_string(x.shape),
                     dtype_name(operands.back().dtype), shape_string(operands.back().shape));
  return {{{2, x.shape.back()}, DType::kFloat64}};
}

ShardingRule sums_rule(const Node&, std::span<const Shape> operands, std::span<const Shape>) {
  RuleBuilder rule;
  const Shape& shape = operands[0];
  TensorFactors factors;
  for (size_t d = 0; d + 1 < shape.size(); ++d) {
    factors.push_back({rule.reduce(shape[d])});
  }
  const int channels = rule.pass(shape.back());
  factors.push_back({channels});
  for (size_t i = 0; i < operands.size(); ++i) {
    rule.operand(factors);
  }
  rule.result({{rule.gather(2)}, {channels}});
  return rule.take();
}

double sums_flops(const Node&, std::span<const Shape> operands, std::span<const Shape>) {
  return 3 * static_cast<double>(num_elements(operands[0]));
}

// One row of per-channel numbers (2, C), in the dtype of the tensor it is used with.
ValueId channel_row(Builder& b, ValueId rows, int64_t row, DType dtype) {
  return b.cast(b.squeeze(b.slice(rows, 0, row, row + 1), 0), dtype);
}

OpDef make_moments() {
  OpDef op;
  op.name = "moments";
  op.sums_over_shards = true;
  op.infer = [](const Node& node, Operands operands) { return infer_sums(node, operands, 1); };
  op.rule = sums_rule;
  op.flops = sums_flops;
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const ValueId x = node.inputs[0];
    const DType dtype = b.dtype(x);
    const ValueId slope = channel_row(b, b.mul(g[0], 2.0), 1, dtype);
    return Ids{b.add(b.mul(x, slope), channel_row(b, g[0], 0, dtype))};
  };
  return op;
}

OpDef make_channel_sums() {
  OpDef op;
  op.name = "channel_sums";
  op.sums_over_shards = true;
  op.infer = [](const Node& node, Operands operands) { return infer_sums(node, operands, 2); };
  op.rule = sums_rule;
  op.flops = sums_flops;
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const ValueId u = node.inputs[0], v = node.inputs[1];
    const DType dtype = b.dtype(u);
    const ValueId first = channel_row(b, g[0], 0, dtype);
    const ValueId second = channel_row(b, g[0], 1, dtype);
    return Ids{b.add(b.mul(v, second), first), b.mul(u, second)};
  };
  return op;
}

OpDef make_channel_affine() {
  OpDef op;
  op.name = "channel_affine";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 3);
    const ValueType& x = operands[0];
    MESHTRAIN_OP_CHECK(node, is_floating(x.dtype) && !x.shape.empty(), "x is {} {}",
                       dtype_name(x.dtype), shape_string(x.shape));
    const ValueType per_channel{{x.shape.back()}, x.dtype};
    MESHTRAIN_OP_CHECK(node, operands[1] == per_channel && operands[2] == per_channel,
                       "scale {} {} and shift {} {} for {} channels of {}",
                       dtype_name(operands[1].dtype), shape_string(operands[1].shape),
                       dtype_name(operands[2].dtype), shape_string(operands[2].shape),
                       x.shape.back(), dtype_name(x.dtype));
    return Types{x};
  };
  op.rule = broadcast_rule;
  op.elementwise = true;
  op.flops = [](const Node&, std::span<const Shape>, std::span<const Shape> results) {
    return 2 * static_cast<double>(num_elements(results[0]));
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const ValueId x = node.inputs[0];
    const DType dtype = b.dtype(x);
    const ValueId sums = b.channel_sums(g[0], x);
    return Ids{b.mul(g[0], node.inputs[1]), channel_row(b, sums, 1, dtype),
               channel_row(b, sums, 0, dtype)};
  };
  return op;
}

}  // namespace

std::vector<OpDef> moments_ops() {
  return {make_moments(), make_channel_sums(), make_channel_affine()};
}

}  // namespace meshtrain
