// Shape ops: they move elements without changing them.
//
//   op         operands  attributes
//   broadcast  x         shape (ints): NumPy rules, aligned at the last dimension
//   transpose  x         permutation (ints): dimension i of the result is dimension p[i] of x
//   reshape    x         shape (ints); row-major order is kept
//   slice      x         axis, begin, end, stride (ints): elements begin, begin + stride, ... < end
//   pad        x         axis, before, after (ints >= 0), value (double, converted to the dtype)
//   concat     parts...  axis
//   reverse    x         axis
//   stop_gradient  x     none; x, on which nothing depends for derivatives
//
// slice, pad, concat and reverse need the whole of the dimension `axis`, so that their numbers
// count on a shard as they do globally. The shard of a broadcast or reshape takes the shape of its
// result.
#include <numeric>

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

OpDef shape_op(std::string_view name) {
  OpDef op;
  op.name = name;
  op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  op.flops = no_flops;
  return op;
}

// The rule of an op that needs dimension `axis` whole.
ShardingRule axis_rule(const Node& node, std::span<const Shape> operands,
                       std::span<const Shape> results) {
  return gather_dim_rule(operands, results, static_cast<int>(node.attr_int("axis")));
}

OpDef make_broadcast() {
  OpDef op = shape_op("broadcast");
  op.kind = OpKind::kBroadcast;
  op.converts = true;
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    const Shape& to = node.attr_ints("shape");
    const Shape& from = operands[0].shape;
    MESHTRAIN_OP_CHECK(node, can_broadcast(from, to) && broadcast_shapes(from, to) == to,
                       "{} cannot become {}", shape_string(from), shape_string(to));
    return Types{{to, operands[0].dtype}};
  };
  op.rule = broadcast_rule;
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    return Ids{sum_to(b, g[0], b.shape(node.inputs[0]))};
  };
  return op;
}

OpDef make_transpose() {
  OpDef op = shape_op("transpose");
  op.is_view = true;
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    const Shape& from = operands[0].shape;
    const std::vector<int64_t>& permutation = node.attr_ints("permutation");
    MESHTRAIN_OP_CHECK(node, permutation.size() == from.size(), "{} axes for rank {}",
                       permutation.size(), from.size());
    std::vector<bool> seen(from.size(), false);
    Shape to;
    for (int64_t axis : permutation) {
      MESHTRAIN_OP_CHECK(node, axis >= 0 && axis < static_cast<int64_t>(from.size()) && !seen[axis],
                         "axis {} is out of range or twice in the permutation", axis);
      seen[axis] = true;
      to.push_back(from[axis]);
    }
    return Types{{to, operands[0].dtype}};
  };
  op.rule = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    RuleBuilder rule;
    TensorFactors from;
    for (int64_t size : operands[0]) {
      from.push_back({rule.pass(size)});
    }
    TensorFactors to;
    for (int64_t axis : node.attr_ints("permutation")) {
      to.push_back(from[axis]);
    }
    rule.operand(std::move(from));
    rule.result(std::move(to));
    return rule.take();
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const std::vector<int64_t>& permutation = node.attr_ints("permutation");
    std::vector<int64_t> inverse(permutation.size());
    for (size_t i = 0; i < permutation.size(); ++i) {
      inverse[permutation[i]] = static_cast<int64_t>(i);
    }
    return Ids{b.transpose(g[0], inverse)};
  };
  return op;
}

// Walks both shapes from the major end and cuts dimensions at common divisors. Where the sizes
// share none, the dimensions up to the next place where both have covered as many elements must be
// whole.
ShardingRule reshape_rule(const Node&, std::span<const Shape> operands,
                          std::span<const Shape> results) {
  const Shape& from = operands[0];
  const Shape& to = results[0];
  RuleBuilder rule;
  TensorFactors from_factors(from.size());
  TensorFactors to_factors(to.size());
  size_t i = 0, j = 0;                 // current dimensions
  int64_t left_from = 1, left_to = 1;  // what is left of them
  const auto next = [](const Shape& shape, size_t& dim) {
    const int64_t size = dim < shape.size() ? shape[dim] : 1;
    ++dim;
    return size;
  };
  // Dimensions i - 1 and j - 1 are current; 1 is left of both at aligned places.
  while (i < from.size() || j < to.size()) {
    if (left_from == 1 && i < from.size()) {
      left_from = next(from, i);
      if (left_from == 1) {
        continue;
      }
    }
    if (left_to == 1 && j < to.size()) {
      left_to = next(to, j);
      if (left_to == 1) {
        continue;
      }
    }
    const int64_t common = std::gcd(left_from, left_to);
    if (common > 1) {
      const int factor = rule.pass(common);
      from_factors[i - 1].push_back(factor);
      to_factors[j - 1].push_back(factor);
      left_from /= common;
      left_to /= common;
      continue;
    }
    int64_t covered_from = left_from;
    int64_t covered_to = left_to;
    from_factors[i - 1].push_back(rule.gather(left_from));
    to_factors[j - 1].push_back(rule.gather(left_to));
    while (covered_from != covered_to) {
      const bool extend_from = covered_from < covered_to;
      const int64_t size = extend_from ? next(from, i) : next(to, j);
      if (size > 1) {
        (extend_from ? from_factors[i - 1] : to_factors[j - 1]).push_back(rule.gather(size));
      }
      (extend_from ? covered_from : covered_to) *= size;
    }
    left_from = left_to = 1;
  }
  rule.operand(std::move(from_factors));
  rule.result(std::move(to_factors));
  return rule.take();
}

OpDef make_reshape() {
  OpDef op = shape_op("reshape");
  op.kind = OpKind::kReshape;
  op.converts = op.is_view = true;
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    const Shape& to = node.attr_ints("shape");
    const Shape& from = operands[0].shape;
    MESHTRAIN_OP_CHECK(node, num_elements(from) == num_elements(to) && num_elements(to) > 0,
                       "{} cannot become {}", shape_string(from), shape_string(to));
    return Types{{to, operands[0].dtype}};
  };
  op.rule = reshape_rule;
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    return Ids{b.reshape(g[0], b.shape(node.inputs[0]))};
  };
  return op;
}

// The transpose of a slice with a stride: zeros between the elements, by way of a new dimension.
ValueId spread(Builder& b, ValueId g, int axis, int64_t stride) {
  Shape merged = b.shape(g);
  merged[axis] *= stride;
  return b.reshape(b.pad(b.expand_dims(g, axis + 1), axis + 1, 0, stride - 1), merged);
}

OpDef make_slice() {
  OpDef op = shape_op("slice");
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    Shape shape = operands[0].shape;
    const int axis = axis_attr(node, shape.size());
    const int64_t begin = node.attr_int("begin");
    const int64_t end = node.attr_int("end");
    const int64_t stride = node.attr_int("stride");
    MESHTRAIN_OP_CHECK(node, begin >= 0 && begin < end && end <= shape[axis] && stride >= 1,
                       "[{}:{}:{}] of a dimension of {}", begin, end, stride, shape[axis]);
    shape[axis] = (end - begin + stride - 1) / stride;
    return Types{{shape, operands[0].dtype}};
  };
  op.rule = axis_rule;
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const int axis = static_cast<int>(node.attr_int("axis"));
    const int64_t begin = node.attr_int("begin");
    const int64_t stride = node.attr_int("stride");
    const int64_t size = b.shape(node.inputs[0])[axis];
    ValueId result = stride == 1 ? g[0] : spread(b, g[0], axis, stride);
    const int64_t missing = size - begin - b.shape(result)[axis];
    if (missing < 0) {
      result = b.slice(result, axis, 0, size - begin);
    }
    return Ids{b.pad(result, axis, begin, std::max<int64_t>(missing, 0))};
  };
  return op;
}

OpDef make_pad() {
  OpDef op = shape_op("pad");
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    Shape shape = operands[0].shape;
    const int axis = axis_attr(node, shape.size());
    const int64_t before = node.attr_int("before");
    const int64_t after = node.attr_int("after");
    MESHTRAIN_OP_CHECK(node, before >= 0 && after >= 0, "before {}, after {}", before, after);
    node.attr_double("value");
    shape[axis] += before + after;
    return Types{{shape, operands[0].dtype}};
  };
  op.rule = axis_rule;
  op.linearity = [](const Node& node) {
    return Linearity{.any_one = node.attr_double("value") == 0 ? 1u : 0u};
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const int axis = static_cast<int>(node.attr_int("axis"));
    const int64_t before = node.attr_int("before");
    return Ids{b.slice(g[0], axis, before, before + b.shape(node.inputs[0])[axis])};
  };
  return op;
}

OpDef make_concat() {
  OpDef op = shape_op("concat");
  op.infer = [](const Node& node, Operands operands) {
    MESHTRAIN_OP_CHECK(node, !operands.empty(), "no operands");
    Shape shape = operands[0].shape;
    const int axis = axis_attr(node, shape.size());
    for (size_t i = 1; i < operands.size(); ++i) {
      Shape expected = shape;
      Shape other = operands[i].shape;
      MESHTRAIN_OP_CHECK(node, other.size() == shape.size(), "ranks {} and {}", shape.size(),
                         other.size());
      const int64_t size = other[axis];
      expected[axis] = size;
      MESHTRAIN_OP_CHECK(node, other == expected && operands[i].dtype == operands[0].dtype,
                         "{} after {}", shape_string(other), shape_string(shape));
      shape[axis] += size;
    }
    return Types{{shape, operands[0].dtype}};
  };
  op.rule = axis_rule;
  op.linearity = [](const Node& node) {
    const size_t count = node.inputs.size();
    const bool fits = count <= 32;  // bits of the mask
    return Linearity{.all = fits ? static_cast<uint32_t>((uint64_t{1} << count) - 1) : 0u};
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const int axis = static_cast<int>(node.attr_int("axis"));
    Ids cotangents;
    int64_t begin = 0;
    for (ValueId part : node.inputs) {
      const int64_t end = begin + b.shape(part)[axis];
      cotangents.push_back(b.slice(g[0], axis, begin, end));
      begin = end;
    }
    return cotangents;
  };
  return op;
}

OpDef make_reverse() {
  OpDef op = shape_op("reverse");
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    axis_attr(node, operands[0].shape.size());
    return Types{operands[0]};
  };
  op.rule = axis_rule;
  op.linearity = nullptr;
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    return Ids{b.reverse(g[0], static_cast<int>(node.attr_int("axis")))};
  };
  return op;
}

OpDef make_stop_gradient() {
  OpDef op = shape_op("stop_gradient");
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    return Types{operands[0]};
  };
  op.rule = broadcast_rule;
  return op;
}

}  // namespace

std::vector<OpDef> shape_ops() {
  return {make_broadcast(), make_transpose(), make_reshape(), make_slice(),
          make_pad(),       make_concat(),    make_reverse(), make_stop_gradient()};
}

}  // namespace meshtrain
