// Rewriter: builds a new Graph from an old one, node by node, for passes that change it.
#pragma once

#include "ir/op.h"

namespace meshtrain {

class Rewriter {
 public:
  explicit Rewriter(const Graph& from);

  const Graph& from() const { return from_; }
  Graph& to() { return to_; }

  // Copies `node` with its operands mapped; maps its results. Returns the new node's index.
  NodeId copy(const Node& node);
  // As copy, with these operands (values of the new graph) and result types as inferred by the op
  // from them unless it has none.
  NodeId copy_with(const Node& node, ValueList inputs);
  // Appends a node with one result of this type.
  ValueId append(Node node, ValueType type);

  ValueId mapped(ValueId old_value) const { return map_[old_value]; }
  void map(ValueId old_value, ValueId new_value) { map_[old_value] = new_value; }

  // Outputs, updates and cotangent ties through the map; then the finished graph.
  Graph finish();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

// A copy without the nodes that no output or update depends on.
Graph remove_dead(const Graph& graph);

}  // namespace meshtrain
