// Pools: the largest or the mean of a window, channel by channel. Windows as in window.h.
//
//   op             operands             attributes   result
//   max_pool       x (N, s..., C)       size         (N, o..., C)
//   max_pool_grad  x, dy (N, o..., C)   size         as x: dy at the first largest cell of each
//                                                    window, in row-major order; the sum of them
//   avg_pool       x                    size         (N, o..., C)
//   avg_pool_grad  dy                   size, shape  `shape`, that of x
//
// `size`: cells of a window per spatial dimension. Padding is never the largest, and means are over
// the cells inside of x; a window of padding alone gives the lowest number and 0. max_pool hands on
// NaN.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"
#include "ir/ops/window.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

Shape pool_shape(const Node& node, const Shape& x) {
  const Window window = window_of(node.attrs);
  const std::vector<int64_t>& size = node.attr_ints("size");
  const size_t rank = size.size() + 2;
  MESHTRAIN_OP_CHECK(
      node,
      x.size() == rank && rank >= 3 && rank <= 5 && window.strides.size() == size.size() &&
          window.dilations.size() == size.size() && window.pads_before.size() == size.size() &&
          window.pads_after.size() == size.size(),
      "windows [{}] over {}", fmt::join(size, ", "), shape_string(x));
  Shape y = {x[0]};
  for (size_t d = 0; d < size.size(); ++d) {
    MESHTRAIN_OP_CHECK(node,
                       size[d] >= 1 && window.strides[d] >= 1 && window.dilations[d] >= 1 &&
                           window.pads_before[d] >= 0 && window.pads_after[d] >= 0,
                       "a window of {} cells, stride {}", size[d], window.strides[d]);
    const int64_t outputs = window_outputs(window, d, x[d + 1], size[d]);
    MESHTRAIN_OP_CHECK(node, outputs >= 1, "windows [{}] do not fit into {}", fmt::join(size, ", "),
                       shape_string(x));
    y.push_back(outputs);
  }
  y.push_back(x.back());
  return y;
}

void check_dtype(const Node& node, DType dtype) {
  MESHTRAIN_OP_CHECK(node, is_floating(dtype), "does not take {}", dtype_name(dtype));
}

void check_dy(const Node& node, const Shape& dy, const Shape& x) {
  MESHTRAIN_OP_CHECK(node, dy == pool_shape(node, x), "dy is {}, for x {}", shape_string(dy),
                     shape_string(x));
}

// Batch and channels are shared by all tensors; everything between must be whole.
ShardingRule pool_rule(const Node&, std::span<const Shape> operands,
                       std::span<const Shape> results) {
  RuleBuilder rule;
  const int batch = rule.pass(operands[0].front());
  const int channels = rule.pass(operands[0].back());
  const auto factors_of = [&](const Shape& shape) {
    TensorFactors factors = {{batch}};
    for (size_t d = 1; d + 1 < shape.size(); ++d) {
      factors.push_back({rule.gather(shape[d])});
    }
    factors.push_back({channels});
    return factors;
  };
  for (const Shape& shape : operands) {
    rule.operand(factors_of(shape));
  }
  for (const Shape& shape : results) {
    rule.result(factors_of(shape));
  }
  return rule.take();
}

// One per cell of every window; `y` is the smaller tensor.
double pool_flops(const Node& node, const Shape& y) {
  double flops = static_cast<double>(num_elements(y));
  for (int64_t cells : node.attr_ints("size")) {
    flops *= static_cast<double>(cells);
  }
  return flops;
}

OpDef make_pool(std::string_view name) {
  OpDef op;
  op.name = name;
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    check_dtype(node, operands[0].dtype);
    return Types{{pool_shape(node, operands[0].shape), operands[0].dtype}};
  };
  op.rule = pool_rule;
  op.flops = [](const Node& node, std::span<const Shape>, std::span<const Shape> results) {
    return pool_flops(node, results[0]);
  };
  return op;
}

OpDef make_max_pool() {
  OpDef op = make_pool("max_pool");
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    return Ids{b.apply("max_pool_grad", {node.inputs[0], g[0]}, node.attrs)};
  };
  return op;
}

OpDef make_max_pool_grad() {
  OpDef op;
  op.name = "max_pool_grad";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 2);
    check_dtype(node, operands[0].dtype);
    MESHTRAIN_OP_CHECK(node, operands[0].dtype == operands[1].dtype, "operands of {} and {}",
                       dtype_name(operands[0].dtype), dtype_name(operands[1].dtype));
    check_dy(node, operands[1].shape, operands[0].shape);
    return Types{operands[0]};
  };
  op.rule = pool_rule;
  op.linearity = [](const Node&) { return Linearity{.any_one = 0b10}; };
  op.flops = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    return pool_flops(node, operands[1]);
  };
  return op;
}

OpDef make_avg_pool() {
  OpDef op = make_pool("avg_pool");
  op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    Attrs attrs = node.attrs;
    attrs["shape"] = b.shape(node.inputs[0]);
    return Ids{b.apply("avg_pool_grad", {g[0]}, std::move(attrs))};
  };
  return op;
}

OpDef make_avg_pool_grad() {
  OpDef op;
  op.name = "avg_pool_grad";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    check_dtype(node, operands[0].dtype);
    check_dy(node, operands[0].shape, node.attr_ints("shape"));
    return Types{{node.attr_ints("shape"), operands[0].dtype}};
  };
  op.rule = pool_rule;
  op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    Attrs attrs = node.attrs;
    attrs.erase("shape");
    return Ids{b.apply("avg_pool", {g[0]}, std::move(attrs))};
  };
  op.flops = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    return pool_flops(node, operands[0]);
  };
  return op;
}

}  // namespace

std::vector<OpDef> pool_ops() {
  return {make_max_pool(), make_max_pool_grad(), make_avg_pool(), make_avg_pool_grad()};
}

}  // namespace meshtrain
