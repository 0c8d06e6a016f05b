// OpDef: all properties of an op: its shape, sharding rule, linearity, gradient, cost and traits.
// Passes use these properties and never the name of an op.
//
// A sharding rule is an einsum-like table of factors (Shardy). Each tensor
// dimension is a list of factors, major to minor; sharding factor f by an axis shards every
// dimension that mentions it:
//   kPass     no communication as long as all tensors agree
//   kReduce   local results without the factor are partial (sum, max or min) over its axes
//   kGather   must be whole before the op runs
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "mesh/reshard.h"

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

// Which operands may be partial sums when the op runs.
struct Linearity {
  // Any one of these may be partial while all other operands are reduced.
  uint32_t any_one = 0;
  // All of these must be partial over the same axes together (add, sub, concat); others reduced.
  uint32_t all = 0;
};

struct ValueType {
  Shape shape;
  DType dtype;
  bool operator==(const ValueType&) const = default;
};

// Identifies ops that some pass must distinguish from all others. A property of several ops is a
// trait.
enum class OpKind : uint8_t {
  kOther,
  kParameter,
  kVarUse,
  kInput,
  kConstant,
  kCast,
  kPin,
  kBroadcast,
  kReshape,
  kOneHot,
  kReshard,
};

struct OpDef {
  std::string_view name;
  OpKind kind = OpKind::kOther;
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

  // --- traits ----------------------------------------------------------------------------------
  // Result element i depends on operand elements i only.
  bool elementwise = false;
  // Elementwise: takes many times as long as an addition, as functions and divisions do.
  bool is_costly = false;
  // The kernel reads element i of all operands before it writes element i of a result. Elementwise
  // ops do so, too.
  bool in_place = false;
  // The Builder gives each node an attribute "stream" from its path.
  bool random = false;
  // Changes the sharding of its operand; the same global value.
  bool collective = false;
  // The move that a collective makes; reshard stands for any.
  std::optional<MoveKind> move = {};
  // Operand and result have layouts of a variable: no sharding propagates from one to the other.
  bool is_layout_boundary = false;
  // Each node has an identity or an effect of its own: equal nodes are not merged.
  bool is_unique = false;
  // Changes only the type of its operand: to the same type it is the identity.
  bool converts = false;
  // With this scalar as second operand the result is the first operand.
  std::optional<double> neutral = {};
  // The result has the operand's elements in other dimensions.
  bool is_view = false;
  // Reduces the dimensions of the attribute `axes` by this.
  std::optional<Combine> reduction = {};
  // The kernel can add up a partial sum over all shards of its operands at once.
  bool sums_over_shards = false;
  // A matrix product or a convolution: multiply-adds decide its time.
  bool is_product = false;
  // Reads as many bytes of operand 0 as it writes.
  bool is_lookup = false;
  // An attribute that is 1 where the op has a last result beside the others: one for the gradient,
  // left out (0) where nothing reads it.
  std::string_view spare_result = {};
};

// Throws InternalError when there is none of this name.
const OpDef& find_op(std::string_view name);
const OpDef& collective_op(MoveKind move);
std::vector<const OpDef*> all_ops();

// Whether a dimension of the tensor has this factor.
bool has_factor(const TensorFactors& tensor, int factor);

// The rule and types of a node in a graph.
ShardingRule sharding_rule(const Graph& graph, const Node& node);
Linearity linearity(const Node& node);
double flops(const Graph& graph, const Node& node);

// True for the collectives in which devices send something: all but shard_slice, and reshard, which
// is none of them yet.
bool communicates(const OpDef& op);

// True for a constant of no dimensions.
bool is_scalar_constant(const Graph& graph, ValueId value);

}  // namespace meshtrain
