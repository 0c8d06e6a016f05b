#include "passes/rewrite.h"

#include <utility>

namespace meshtrain {

Rewriter::Rewriter(Graph& from) : from_(from), map_(from.values.size(), kNone) {
  to_.variables = std::move(from.variables);
  to_.nodes.reserve(from.nodes.size());
  to_.values.reserve(from.values.size());
}

ValueList Rewriter::mapped_inputs(const Node& node) const {
  ValueList inputs;
  for (const ValueId input : node.inputs) {
    MESHTRAIN_CHECK(map_[input] != kNone, "operand of {} was not copied", node.path);
    inputs.push_back(map_[input]);
  }
  return inputs;
}

NodeId Rewriter::move(Node& node) {
  return move_with(node, mapped_inputs(node));
}

NodeId Rewriter::move_with(Node& node, ValueList inputs) {
  for (const ValueId output : node.outputs) {
    to_.values.push_back(std::move(from_.values[output]));
  }
  return place(node, std::move(inputs));
}

NodeId Rewriter::move_and_keep_values(Node& node, ValueList inputs) {
  for (const ValueId output : node.outputs) {
    to_.values.push_back(from_.values[output]);
  }
  return place(node, std::move(inputs));
}

// The node with its results, the last values of the new graph.
NodeId Rewriter::place(Node& node, ValueList inputs) {
  const NodeId id = static_cast<NodeId>(to_.nodes.size());
  ValueId next = static_cast<ValueId>(to_.values.size() - node.outputs.size());
  Node& moved = to_.nodes.emplace_back(std::move(node));
  moved.inputs = std::move(inputs);
  for (size_t r = 0; r < moved.outputs.size(); ++r, ++next) {
    Value& value = to_.values[next];
    value.producer = id;
    value.result_index = static_cast<int>(r);
    map_[moved.outputs[r]] = next;
    moved.outputs[r] = next;
  }
  return id;
}

ValueId Rewriter::append(Node node, ValueType type) {
  const ValueId result = static_cast<ValueId>(to_.values.size());
  Value& value = to_.values.emplace_back();
  value.shape = std::move(type.shape);
  value.dtype = type.dtype;
  value.producer = static_cast<NodeId>(to_.nodes.size());
  node.outputs = {result};
  to_.nodes.push_back(std::move(node));
  return result;
}

Graph Rewriter::finish() {
  to_.outputs = std::move(from_.outputs);
  to_.updates = std::move(from_.updates);
  renumber_ends(to_, map_);
  return std::move(to_);
}

void renumber_ends(Graph& graph, const std::vector<ValueId>& map) {
  for (Output& output : graph.outputs) {
    output.value = map[output.value];
  }
  for (Update& update : graph.updates) {
    update.value = map[update.value];
  }
  for (Value& value : graph.values) {
    value.cotangent_of = value.cotangent_of == kNone ? kNone : map[value.cotangent_of];
  }
}

namespace {

struct Needed {
  std::vector<bool> values, nodes;
};

Needed needed_parts(const Graph& graph) {
  Needed out{std::vector<bool>(graph.values.size(), false),
             std::vector<bool>(graph.nodes.size(), false)};
  for (const Output& output : graph.outputs) {
    out.values[output.value] = true;
  }
  for (const Update& update : graph.updates) {
    out.values[update.value] = true;
  }
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    for (const ValueId output : node.outputs) {
      out.nodes[n] = out.nodes[n] || out.values[output];
    }
    if (out.nodes[n]) {
      for (const ValueId input : node.inputs) {
        out.values[input] = true;
      }
    }
  }
  return out;
}

void drop_spare_result(Node& node, const std::vector<bool>& needed) {
  const std::string attr(node.op->spare_result);
  if (attr.empty() || node.attr_int(attr) == 0 || needed[node.outputs.back()]) {
    return;
  }
  node.attrs[attr] = int64_t{0};
  node.outputs.pop_back();
}

}  // namespace

void remove_dead(Graph& graph) {
  const Needed needed = needed_parts(graph);
  std::vector<ValueId> renumbered(graph.values.size(), kNone);
  NodeId next_node = 0;
  ValueId next_value = 0;
  const auto move_to = [](auto& list, int to, int from) {
    if (to != from) {
      list[to] = std::move(list[from]);
    }
  };
  for (NodeId n = 0; n < static_cast<NodeId>(needed.nodes.size()); ++n) {
    if (!needed.nodes[n]) {
      continue;
    }
    move_to(graph.nodes, next_node, n);
    Node& node = graph.nodes[next_node];
    drop_spare_result(node, needed.values);
    for (ValueId& input : node.inputs) {
      input = renumbered[input];
    }
    for (ValueId& output : node.outputs) {
      move_to(graph.values, next_value, output);
      graph.values[next_value].producer = next_node;
      renumbered[output] = next_value;
      output = next_value++;
    }
    ++next_node;
  }
  graph.nodes.resize(next_node);
  graph.values.resize(next_value);
  renumber_ends(graph, renumbered);
}

}  // namespace meshtrain
