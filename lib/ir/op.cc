#include "ir/op.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

struct Registry {
  std::vector<OpDef> ops;
  std::unordered_map<std::string_view, const OpDef*> by_name;

  Registry() {
    // A plain table instead of registration by static objects, which a linker may drop.
    for (const auto& family :
         {source_ops, elementwise_ops, shape_ops, reduce_ops, einsum_ops, gather_ops, conv_ops,
          pool_ops, moments_ops, warp_ops, dropout_ops, attention_ops, linear_cross_entropy_ops,
          rnn_ops, optimizer_ops, collective_ops}) {
      for (OpDef& op : family()) {
        ops.push_back(std::move(op));
      }
    }
    for (const OpDef& op : ops) {
      const bool is_new = by_name.emplace(op.name, &op).second;
      MESHTRAIN_CHECK(is_new, "two ops are called {}", op.name);
    }
  }
};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

SmallVector<Shape, 4> shapes_of(const Graph& graph, const ValueList& values) {
  SmallVector<Shape, 4> shapes;
  for (ValueId value : values) {
    shapes.push_back(graph.shape(value));
  }
  return shapes;
}

}  // namespace

const OpDef& find_op(std::string_view name) {
  const auto found = registry().by_name.find(name);
  MESHTRAIN_CHECK(found != registry().by_name.end(), "there is no op `{}`", name);
  return *found->second;
}

const OpDef& collective_op(MoveKind move) {
  const std::vector<OpDef>& ops = registry().ops;
  return *std::find_if(ops.begin(), ops.end(), [&](const OpDef& op) { return op.move == move; });
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef& op : registry().ops) {
    ops.push_back(&op);
  }
  return ops;
}

bool has_factor(const TensorFactors& tensor, int factor) {
  return std::any_of(tensor.begin(), tensor.end(), [factor](const FactorList& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

ShardingRule sharding_rule(const Graph& graph, const Node& node) {
  return node.op->rule(node, shapes_of(graph, node.inputs), shapes_of(graph, node.outputs));
}

Linearity linearity(const Node& node) {
  return node.op->linearity ? node.op->linearity(node) : Linearity{};
}

double flops(const Graph& graph, const Node& node) {
  const SmallVector<Shape, 4> results = shapes_of(graph, node.outputs);
  if (node.op->flops) {
    return node.op->flops(node, shapes_of(graph, node.inputs), results);
  }
  double total = 0;
  for (const Shape& shape : results) {
    total += static_cast<double>(num_elements(shape));
  }
  return total;
}

bool communicates(const OpDef& op) {
  return op.move && *op.move != MoveKind::kSlice;
}

bool is_scalar_constant(const Graph& graph, ValueId value) {
  return graph.producer(value).op->kind == OpKind::kConstant && graph.shape(value).empty();
}

}  // namespace meshtrain
