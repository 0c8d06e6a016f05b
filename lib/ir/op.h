// OpDef: everything the passes know about an op, stated once: its shape, its sharding rule, which
// operands it is linear in, its gradient, its cost. Passes read these and know no op by name.
//
// A sharding rule is an einsum-like table of factors (Shardy; spmd facts section 2). Each tensor
// dimension is a list of factors, major to minor; sharding factor f by an axis shards every
// dimension that mentions it:
//   kPass     no communication as long as all tensors agree
//   kReduce   the local result is pending (sum, max or min) over the factor's axes
//   kGather   must be whole before the op runs
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace meshtrain {

class Builder;

enum class FactorKind : uint8_t { kPass, kReduce, kGather };

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::kPass;
  Combine combine = Combine::kSum;  // of kReduce
};

using FactorList = std::vector<int>;  // factor indices of one dimension, major to minor
using TensorFactors = std::vector<FactorList>;

struct ShardingRule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> operands;  // [operand][dimension]; a dimension of size 1 that is
  std::vector<TensorFactors> results;   // broadcast has no factor
};

// Which operands may be pending sums when the op runs on them unsettled.
struct Linearity {
  // Any one of these may be pending while all other operands are settled.
  uint32_t any_one = 0;
  // All of these must be pending over the same axes together (add, sub, concat); others settled.
  uint32_t all = 0;
};

struct ValueType {
  Shape shape;
  DType dtype;
  bool operator==(const ValueType&) const = default;
};

struct OpDef {
  std::string_view name;
  // Result types from operand types and attributes; throws InternalError when they do not fit.
  std::function<std::vector<ValueType>(const Node&, std::span<const ValueType>)> infer;
  std::function<ShardingRule(const Node&, std::span<const Shape> operands,
                             std::span<const Shape> results)>
      rule;
  std::function<Linearity(const Node&)> linearity;  // absent: linear in nothing
  // Cotangents of the operands (kNone where there is none) from those of the results (kNone where
  // nothing depends on them). Absent: not differentiable, gradients stop here.
  std::function<std::vector<ValueId>(Builder&, const Node&, std::span<const ValueId>)> vjp;
  // Floating-point operations on tensors of these shapes; absent: one per result element.
  std::function<double(const Node&, std::span<const Shape> operands,
                       std::span<const Shape> results)>
      flops;
  bool elementwise = false;  // result element i depends on operand elements i only
  bool random = false;       // the Builder gives each node an attribute "stream" from its path
  bool collective = false;   // changes how its operand lies on the mesh; the same global value
};

// Throws InternalError when there is none of this name.
const OpDef& find_op(std::string_view name);
std::vector<const OpDef*> all_ops();

// The rule and types of a node in a graph.
ShardingRule sharding_rule(const Graph& graph, const Node& node);
Linearity linearity(const Node& node);
double flops(const Graph& graph, const Node& node);

}  // namespace meshtrain
