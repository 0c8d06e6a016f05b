// Helpers that the op files share: checks, sharding rules that many ops have, and terms of
// gradients.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace meshtrain {

[[noreturn]] void op_check_failed(const Node& node, const std::string& message);

// Throws InternalError that names the node when `condition` is false.
#define MESHTRAIN_OP_CHECK(node, condition, ...)                                               \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      ::meshtrain::op_check_failed(node, ::meshtrain::internal::format_or_empty(__VA_ARGS__)); \
    }                                                                                          \
  } while (false)

void check_num_operands(const Node& node, std::span<const ValueType> operands, size_t expected);
// The attribute "axis" (or another name), checked to be in [0, rank).
int axis_attr(const Node& node, size_t rank, std::string_view name = "axis");
DType dtype_attr(const Node& node);  // the attribute "dtype", a NumPy name
// No flops: nothing but bytes move.
double no_flops(const Node& node, std::span<const Shape> operands, std::span<const Shape> results);

// Collects a ShardingRule factor by factor.
class RuleBuilder {
 public:
  int pass(int64_t size) { return add({size, FactorKind::kPass, Combine::kSum}); }
  int reduce(int64_t size, Combine combine = Combine::kSum) {
    return add({size, FactorKind::kReduce, combine});
  }
  int gather(int64_t size) { return add({size, FactorKind::kGather, Combine::kSum}); }
  void operand(TensorFactors factors) { rule_.operands.push_back(std::move(factors)); }
  void result(TensorFactors factors) { rule_.results.push_back(std::move(factors)); }
  ShardingRule take() { return std::move(rule_); }

 private:
  int add(Factor factor) {
    rule_.factors.push_back(factor);
    return static_cast<int>(rule_.factors.size()) - 1;
  }
  ShardingRule rule_;
};

// One pass factor per dimension of the (equal) results; operands are aligned at the last dimension
// and have no factor where they are broadcast. Fits elementwise ops, sources and broadcast.
ShardingRule broadcast_rule(const Node& node, std::span<const Shape> operands,
                            std::span<const Shape> results);
// Dimension i of every operand and result is the same pass factor, except `gathered`, which must be
// whole and is a factor of its own in each tensor, since its size may change.
ShardingRule gather_dim_rule(std::span<const Shape> operands, std::span<const Shape> results,
                             int gathered);

// The cotangent of an operand of shape `shape` that was broadcast to g's shape: g summed back.
ValueId sum_to(Builder& b, ValueId g, const Shape& shape);
// x repeated over `full`, where `kept` is `full` with 1 in the dimensions that x lacks or is
// repeated over; x has as many elements as `kept`.
ValueId repeat_over(Builder& b, ValueId x, const Shape& kept, const Shape& full);
// A scalar 0 of the dtype of `like`, for select().
ValueId zero_like(Builder& b, ValueId like);

}  // namespace meshtrain
