#include "ir/ops/helpers.h"

#include <algorithm>

namespace meshtrain {

void op_check_failed(const Node& node, const std::string& message) {
  throw InternalError(fmt::format("{} ({}): {}", node.path.empty() ? "a node" : node.path,
                                  node.op != nullptr ? node.op->name : "no op", message));
}

void check_num_operands(const Node& node, std::span<const ValueType> operands, size_t expected) {
  MESHTRAIN_OP_CHECK(node, operands.size() == expected, "{} operands, {} expected", operands.size(),
                     expected);
}

int axis_attr(const Node& node, size_t rank, std::string_view name) {
  const int64_t axis = node.attr_int(name);
  MESHTRAIN_OP_CHECK(node, axis >= 0 && axis < static_cast<int64_t>(rank),
                     "attribute `{}` is {}, for rank {}", name, axis, rank);
  return static_cast<int>(axis);
}

DType dtype_attr(const Node& node) {
  const std::string& name = node.attr_string("dtype");
  const std::optional<DType> dtype = parse_dtype(name);
  MESHTRAIN_OP_CHECK(node, dtype.has_value(), "there is no dtype `{}`", name);
  return *dtype;
}

double no_flops(const Node&, std::span<const Shape>, std::span<const Shape>) {
  return 0;
}

namespace {

// The factors of `shape` when it is broadcast, aligned at the last dimension, to dimensions of
// sizes `full` with factors 0, 1, ...
TensorFactors aligned_factors(const Shape& shape, const Shape& full) {
  TensorFactors factors(shape.size());
  const size_t offset = full.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == full[offset + i]) {
      factors[i] = {static_cast<int>(offset + i)};
    }
  }
  return factors;
}

}  // namespace

ShardingRule broadcast_rule(const Node& node, std::span<const Shape> operands,
                            std::span<const Shape> results) {
  RuleBuilder rule;
  const Shape& full = results.front();
  for (int64_t size : full) {
    rule.pass(size);
  }
  for (const Shape& shape : operands) {
    MESHTRAIN_OP_CHECK(node, shape.size() <= full.size(), "an operand of shape {} for a result {}",
                       shape_string(shape), shape_string(full));
    rule.operand(aligned_factors(shape, full));
  }
  for (const Shape& shape : results) {
    rule.result(aligned_factors(shape, full));
  }
  return rule.take();
}

ShardingRule gather_dim_rule(std::span<const Shape> operands, std::span<const Shape> results,
                             int gathered) {
  RuleBuilder rule;
  const Shape& first = operands.empty() ? results.front() : operands.front();
  std::vector<int> shared(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    shared[i] = static_cast<int>(i) == gathered ? -1 : rule.pass(first[i]);
  }
  const auto factors_of = [&](const Shape& shape) {
    TensorFactors factors(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) {
      factors[i] = {shared[i] < 0 ? rule.gather(shape[i]) : shared[i]};
    }
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

ValueId sum_to(Builder& b, ValueId g, const Shape& shape) {
  const Shape from = b.shape(g);
  if (from == shape) {
    return g;
  }
  const size_t offset = from.size() - shape.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < offset || shape[i - offset] != from[i]) {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  return b.reshape(b.reduce_sum(g, axes), shape);
}

ValueId repeat_over(Builder& b, ValueId x, const Shape& kept, const Shape& full) {
  const Shape from = b.shape(x);
  const size_t missing = kept.size() - std::min(from.size(), kept.size());
  // Broadcasting adds leading dimensions by itself.
  const bool is_aligned = std::all_of(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(missing),
                                      [](int64_t size) { return size == 1; }) &&
                          std::equal(from.begin(), from.end(),
                                     kept.begin() + static_cast<ptrdiff_t>(missing), kept.end());
  return b.broadcast_to(is_aligned ? x : b.reshape(x, kept), full);
}

ValueId zero_like(Builder& b, ValueId like) {
  return b.constant(0, b.dtype(like));
}

}  // namespace meshtrain
