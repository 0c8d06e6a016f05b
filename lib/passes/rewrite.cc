#include "passes/rewrite.h"

namespace meshtrain {

Rewriter::Rewriter(const Graph& from) : from_(from), map_(from.values.size(), kNone) {
  to_.variables = from.variables;
  to_.nodes.reserve(from.nodes.size());
  to_.values.reserve(from.values.size());
}

NodeId Rewriter::copy(const Node& node) {
  ValueList inputs;
  inputs.reserve(node.inputs.size());
  for (const ValueId input : node.inputs) {
    MESHTRAIN_CHECK(map_[input] != kNone, "operand of {} was not copied", node.path);
    inputs.push_back(map_[input]);
  }
  return copy_with(node, std::move(inputs));
}

NodeId Rewriter::copy_with(const Node& node, ValueList inputs) {
  const NodeId id = static_cast<NodeId>(to_.nodes.size());
  Node copy = node;
  copy.inputs = std::move(inputs);
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    Value value = from_.values[node.outputs[r]];
    value.producer = id;
    value.result_index = static_cast<int>(r);
    copy.outputs[r] = static_cast<ValueId>(to_.values.size());
    map_[node.outputs[r]] = copy.outputs[r];
    to_.values.push_back(std::move(value));
  }
  to_.nodes.push_back(std::move(copy));
  return id;
}

ValueId Rewriter::append(Node node, ValueType type) {
  const ValueId result = static_cast<ValueId>(to_.values.size());
  Value value;
  value.shape = std::move(type.shape);
  value.dtype = type.dtype;
  value.producer = static_cast<NodeId>(to_.nodes.size());
  to_.values.push_back(std::move(value));
  node.outputs = {result};
  to_.nodes.push_back(std::move(node));
  return result;
}

Graph Rewriter::finish() {
  for (const Output& output : from_.outputs) {
    to_.outputs.push_back({output.name, map_[output.value]});
  }
  for (const Update& update : from_.updates) {
    to_.updates.push_back({update.variable, map_[update.value]});
  }
  // Values kept their old ties; a tie to a value that is gone is dropped.
  for (Value& value : to_.values) {
    if (value.cotangent_of != kNone) {
      value.cotangent_of = map_[value.cotangent_of];
    }
  }
  return std::move(to_);
}

Graph remove_dead(const Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Output& output : graph.outputs) {
    needed[output.value] = true;
  }
  for (const Update& update : graph.updates) {
    needed[update.value] = true;
  }
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    for (const ValueId output : node.outputs) {
      keep[n] = keep[n] || needed[output];
    }
    if (keep[n]) {
      for (const ValueId input : node.inputs) {
        needed[input] = true;
      }
    }
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (keep[n]) {
      rewriter.copy(graph.nodes[n]);
    }
  }
  return rewriter.finish();
}

}  // namespace meshtrain
