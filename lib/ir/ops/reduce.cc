// Reductions and what else looks along a dimension.
//
//   op          attributes             result
//   reduce_sum  axes, keepdims (0/1)   without the dimensions `axes` (ascending ints), or of size 1
//   reduce_max  axes, keepdims         as above; NaN is handed on
//   reduce_min  axes, keepdims
//   argmax      axis                   int32 index of the first of the largest, `axis` removed
//   cumsum      axis                   inclusive running sum, same shape
//   top_k       k                      values and int32 indices of the k largest of the last
//                                      dimension, largest first, the first of equals first
//
// A reduction over a sharded dimension leaves a partial sum, max or min. The gradient of reduce_max
// and reduce_min is shared equally among equals, as JAX does.
#include <algorithm>

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

Shape reduced_shape(const Node& node, const Shape& from) {
  const std::vector<int64_t>& axes = node.attr_ints("axes");
  const bool keepdims = node.attr_int("keepdims") != 0;
  Shape to;
  size_t next = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    if (next < axes.size() && axes[next] == static_cast<int64_t>(i)) {
      ++next;
      if (keepdims) {
        to.push_back(1);
      }
    } else {
      to.push_back(from[i]);
    }
  }
  MESHTRAIN_OP_CHECK(node, next == axes.size(), "axes [{}] must ascend, for rank {}",
                     fmt::join(axes, ", "), from.size());
  return to;
}

ShardingRule reduce_rule(const Node& node, const Shape& from, Combine combine) {
  const std::vector<int64_t>& axes = node.attr_ints("axes");
  const bool keepdims = node.attr_int("keepdims") != 0;
  RuleBuilder rule;
  TensorFactors operand, result;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    const int factor = reduced ? rule.reduce(from[i], combine) : rule.pass(from[i]);
    operand.push_back({factor});
    if (!reduced) {
      result.push_back({factor});
    } else if (keepdims) {
      result.push_back({});
    }
  }
  rule.operand(std::move(operand));
  rule.result(std::move(result));
  return rule.take();
}

double one_per_operand_element(const Node&, std::span<const Shape> operands,
                               std::span<const Shape>) {
  return static_cast<double>(num_elements(operands[0]));
}

// A result of a reduction, laid out again over the operand's shape.
ValueId expand(Builder& b, const Node& node, ValueId reduced) {
  const Shape full = b.shape(node.inputs[0]);
  Shape kept = full;
  for (int64_t axis : node.attr_ints("axes")) {
    kept[axis] = 1;
  }
  return repeat_over(b, reduced, kept, full);
}

Ids extremum_vjp(Builder& b, const Node& node, std::span<const ValueId> g) {
  const ValueId x = node.inputs[0];
  const ValueId is_extremum = b.binary("eq", x, expand(b, node, node.outputs[0]));
  const ValueId count = b.reduce_sum(b.cast(is_extremum, b.dtype(x)), node.attr_ints("axes"),
                                     node.attr_int("keepdims") != 0);
  const ValueId share = expand(b, node, b.div(g[0], count));
  return {b.select(is_extremum, share, zero_like(b, x))};
}

OpDef make_reduction(std::string_view name, Combine combine) {
  OpDef op;
  op.name = name;
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    MESHTRAIN_OP_CHECK(node, operands[0].dtype != DType::kBool, "does not take bool");
    return Types{{reduced_shape(node, operands[0].shape), operands[0].dtype}};
  };
  op.rule = [combine](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    return reduce_rule(node, operands[0], combine);
  };
  op.flops = one_per_operand_element;
  op.reduction = combine;
  op.sums_over_shards = combine == Combine::kSum;
  if (combine == Combine::kSum) {
    op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
    op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
      return Ids{expand(b, node, g[0])};
    };
  } else {
    op.vjp = extremum_vjp;
  }
  return op;
}

OpDef make_argmax() {
  OpDef op;
  op.name = "argmax";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    Shape shape = operands[0].shape;
    shape.erase(shape.begin() + axis_attr(node, shape.size()));
    return Types{{shape, DType::kInt32}};
  };
  op.rule = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    RuleBuilder rule;
    TensorFactors operand, result;
    for (size_t i = 0; i < operands[0].size(); ++i) {
      const bool searched = static_cast<int64_t>(i) == node.attr_int("axis");
      const int factor = searched ? rule.gather(operands[0][i]) : rule.pass(operands[0][i]);
      operand.push_back({factor});
      if (!searched) {
        result.push_back({factor});
      }
    }
    rule.operand(std::move(operand));
    rule.result(std::move(result));
    return rule.take();
  };
  op.flops = one_per_operand_element;
  return op;
}

OpDef make_cumsum() {
  OpDef op;
  op.name = "cumsum";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    axis_attr(node, operands[0].shape.size());
    MESHTRAIN_OP_CHECK(node, operands[0].dtype != DType::kBool, "does not take bool");
    return Types{operands[0]};
  };
  op.rule = [](const Node& node, std::span<const Shape> operands, std::span<const Shape> results) {
    return gather_dim_rule(operands, results, static_cast<int>(node.attr_int("axis")));
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const int axis = static_cast<int>(node.attr_int("axis"));
    return Ids{b.reverse(b.cumsum(b.reverse(g[0], axis), axis), axis)};
  };
  return op;
}

OpDef make_top_k() {
  OpDef op;
  op.name = "top_k";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    Shape shape = operands[0].shape;
    const int64_t k = node.attr_int("k");
    MESHTRAIN_OP_CHECK(node, !shape.empty() && k >= 1 && k <= shape.back(), "k = {} of {}", k,
                       shape_string(shape));
    shape.back() = k;
    return Types{{shape, operands[0].dtype}, {shape, DType::kInt32}};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    return gather_dim_rule(operands, results, static_cast<int>(operands[0].size()) - 1);
  };
  op.flops = one_per_operand_element;
  // The values' cotangents go back to where the values came from; indices have none.
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    if (g[0] == kNone) {
      return Ids{kNone};
    }
    const Shape from = b.shape(node.inputs[0]);
    std::string rows;
    for (size_t i = 0; i + 1 < from.size(); ++i) {
      rows += static_cast<char>('a' + i);
    }
    const ValueId places = b.one_hot(node.outputs[1], from.back(), b.dtype(g[0]));
    return Ids{b.einsum(fmt::format("{0}Y,{0}YZ->{0}Z", rows), {g[0], places})};
  };
  return op;
}

}  // namespace

std::vector<OpDef> reduce_ops() {
  return {make_reduction("reduce_sum", Combine::kSum),
          make_reduction("reduce_max", Combine::kMax),
          make_reduction("reduce_min", Combine::kMin),
          make_argmax(),
          make_cumsum(),
          make_top_k()};
}

}  // namespace meshtrain
