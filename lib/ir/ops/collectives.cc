// Collectives: what the partitioner puts between nodes. On global values each is the identity; they
// say how a value moves from the Sharding of its operand to that of its result.
//
//   op              attributes                 the result's sharding, from the operand's
//   reshard         -                          any; expanded into those below before it runs
//   all_reduce      axes, combine              `axes` are no longer partial
//   all_gather      axes, dim                  `axes`, the last of dimension `dim`, are gone
//   reduce_scatter  axes, dim, combine         `axes` are no longer partial, appended to `dim`
//   all_to_all      axes, dim, to_dim          `axes`, the last of `dim`, appended to `to_dim`
//   shard_slice     axes, dim                  `axes`, free before, appended to `dim`; local
//   permute         axes, dim                  the axes of `dim` become `axes`, as many shards
//
// `axes`: mesh axis indices, major to minor; `combine`: "sum", "max" or "min". A bucket is one node
// over several tensors: an operand and a result for each, `dims` and `to_dims` (lists beside them)
// in place of `dim` and `to_dim`.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

struct Collective {
  std::string_view name;
  std::optional<MoveKind> move;
  bool axes, dim, to_dim, combine;  // attributes it has
};

constexpr Collective kCollectives[] = {
    {"reshard", std::nullopt, false, false, false, false},
    {"all_reduce", MoveKind::kAllReduce, true, false, false, true},
    {"all_gather", MoveKind::kAllGather, true, true, false, false},
    {"reduce_scatter", MoveKind::kReduceScatter, true, true, false, true},
    {"all_to_all", MoveKind::kAllToAll, true, true, true, false},
    {"shard_slice", MoveKind::kSlice, true, true, false, false},
    {"permute", MoveKind::kPermute, true, true, false, false},
};

// A bucket: an operand and a result per tensor, each with its own dim.
std::vector<ValueType> infer_bucket(const Node& node, std::span<const ValueType> operands) {
  MESHTRAIN_OP_CHECK(node, node.attr_ints("dims").size() == operands.size(),
                     "{} dims for {} operands", node.attr_ints("dims").size(), operands.size());
  return {operands.begin(), operands.end()};
}

std::vector<ValueType> infer(const Collective& kind, const Node& node,
                             std::span<const ValueType> operands) {
  if (node.has_attr("dims")) {
    return infer_bucket(node, operands);
  }
  check_num_operands(node, operands, 1);
  const size_t rank = operands[0].shape.size();
  if (kind.axes) {
    node.attr_ints("axes");
  }
  if (kind.dim) {
    axis_attr(node, rank, "dim");
  }
  if (kind.to_dim) {
    axis_attr(node, rank, "to_dim");
  }
  if (kind.combine) {
    const std::string& combine = node.attr_string("combine");
    MESHTRAIN_OP_CHECK(node, combine == "sum" || combine == "max" || combine == "min",
                       "there is no combine `{}`", combine);
  }
  return {operands[0]};
}

// The partitioner knows both sides of a collective, so that no factor ties them.
ShardingRule rule_without_factors(const Node&, std::span<const Shape> operands,
                                  std::span<const Shape> results) {
  RuleBuilder rule;
  for (const Shape& shape : operands) {
    rule.operand(TensorFactors(shape.size()));
  }
  for (const Shape& shape : results) {
    rule.result(TensorFactors(shape.size()));
  }
  return rule.take();
}

}  // namespace

std::vector<OpDef> collective_ops() {
  std::vector<OpDef> ops;
  for (const Collective& kind : kCollectives) {
    OpDef op;
    op.name = kind.name;
    op.infer = [&kind](const Node& node, std::span<const ValueType> operands) {
      return infer(kind, node, operands);
    };
    op.rule = rule_without_factors;
    op.flops = no_flops;
    op.collective = true;
    op.move = kind.move;
    if (!kind.move) {
      op.kind = OpKind::kReshard;
      op.is_layout_boundary = op.is_unique = true;
    }
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace meshtrain
