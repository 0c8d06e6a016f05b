// Rewriter: builds a new Graph from an old one, node by node, for passes that change it.
#pragma once

#include "ir/op.h"

namespace meshtrain {

class Rewriter {
 public:
  // Takes the variables of `from`; nodes and values are moved one by one. `from` must outlive this.
  explicit Rewriter(Graph& from);

  const Graph& from() const { return from_; }
  Graph& to() { return to_; }

  // Moves `node` (of the old graph, or created by the caller with its results) with its operands
  // mapped; maps its results. Its results' values in the old graph are empty afterwards. Returns
  // the new node's index.
  NodeId move(Node& node);
  // As move, with these operands (values of the new graph).
  NodeId move_with(Node& node, ValueList inputs);
  // As move_with; the old values are unchanged.
  NodeId move_and_keep_values(Node& node, ValueList inputs);
  // Appends a node with one result of this type.
  ValueId append(Node node, ValueType type);

  ValueId mapped(ValueId old_value) const { return map_[old_value]; }
  void map(ValueId old_value, ValueId new_value) { map_[old_value] = new_value; }

  // Maps outputs, updates and cotangent ties, and returns the finished graph.
  Graph finish();

 private:
  ValueList mapped_inputs(const Node& node) const;
  NodeId place(Node& node, ValueList inputs);

  Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

// Renumbers the values of outputs, updates and cotangent ties through `map`. A tie to a removed
// value (kNone) is dropped.
void renumber_ends(Graph& graph, const std::vector<ValueId>& map);

// Removes the nodes that no output or update depends on, and spare results that nothing reads.
void remove_dead(Graph& graph);

}  // namespace meshtrain
