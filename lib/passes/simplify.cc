#include "passes/simplify.h"

#include <algorithm>

#include "base/hash.h"
#include "base/hash_index.h"
#include "ir/op.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

// Works in place: remaining entries move over removed ones, so that the first nodes and values of
// the graph are the new ones while the later ones are still the old.
class Simplifier {
 public:
  explicit Simplifier(Graph& graph)
      : graph_(graph), map_(graph.values.size(), kNone), known_(graph.nodes.size()) {}

  void run() {
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      simplify_node(n);
    }
    graph_.nodes.resize(static_cast<size_t>(num_nodes_));
    graph_.values.resize(static_cast<size_t>(num_values_));
    renumber_ends(graph_, map_);
    remove_dead(graph_);
  }

 private:
  void simplify_node(NodeId n) {
    const Node& node = graph_.nodes[n];
    ValueList inputs;
    for (const ValueId input : node.inputs) {
      inputs.push_back(map_[input]);
    }
    if (const ValueId same = identity_of(node, inputs); same != kNone) {
      map_[node.outputs[0]] = same;
      return;
    }
    skip_broadcasts(node, inputs);
    if (!may_share(node)) {
      keep(n, std::move(inputs));
      return;
    }
    const uint64_t hash = hash_of(node, inputs);
    if (const NodeId same = find_same(node, inputs, hash); same != kNone) {
      for (size_t r = 0; r < node.outputs.size(); ++r) {
        map_[node.outputs[r]] = graph_.nodes[same].outputs[r];
      }
    } else {
      known_.add(hash, keep(n, std::move(inputs)));
    }
  }

  // Makes old node `n` the next new one.
  NodeId keep(NodeId n, ValueList inputs) {
    if (num_nodes_ != n) {
      graph_.nodes[num_nodes_] = std::move(graph_.nodes[n]);
    }
    Node& node = graph_.nodes[num_nodes_];
    node.inputs = std::move(inputs);
    for (ValueId& output : node.outputs) {
      if (num_values_ != output) {
        graph_.values[num_values_] = std::move(graph_.values[output]);
      }
      graph_.values[num_values_].producer = num_nodes_;
      map_[output] = num_values_;
      output = num_values_++;
    }
    return num_nodes_++;
  }

  const Node& producer(ValueId v) const { return graph_.producer(v); }
  const Value& value(ValueId v) const { return graph_.values[v]; }

  bool is_number(ValueId v, double number) const {
    return is_scalar_constant(graph_, v) && producer(v).attr_double("value") == number;
  }

  // The operand that the node's only result equals, or kNone.
  ValueId identity_of(const Node& node, const ValueList& inputs) {
    if (node.outputs.size() != 1 || inputs.empty()) {
      return kNone;
    }
    const Value& result = value(node.outputs[0]);
    const auto same_type = [&](ValueId v) {
      return value(v).shape == result.shape && value(v).dtype == result.dtype;
    };
    if (!same_type(inputs[0])) {
      return kNone;
    }
    const bool is_same =
        node.op->converts || (node.op->neutral && is_number(inputs[1], *node.op->neutral));
    return is_same ? inputs[0] : kNone;
  }

  // Elementwise ops broadcast by themselves: read what a broadcast_to reads when the result's
  // shape is unchanged.
  void skip_broadcasts(const Node& node, ValueList& inputs) {
    if (!node.op->elementwise || inputs.size() < 2) {
      return;
    }
    const Shape& wanted = value(node.outputs[0]).shape;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (producer(inputs[i]).op->kind != OpKind::kBroadcast) {
        continue;
      }
      ValueList tried = inputs;
      tried[i] = producer(inputs[i]).inputs[0];
      Shape shape = value(tried[0]).shape;
      for (size_t k = 1; k < tried.size(); ++k) {
        shape = broadcast_shapes(shape, value(tried[k]).shape);
      }
      if (shape == wanted) {
        inputs = std::move(tried);
      }
    }
  }

  bool may_share(const Node& node) const {
    // Whole tensors of constants would couple the layouts of unrelated readers.
    return !node.op->is_unique && (!node.inputs.empty() || value(node.outputs[0]).shape.empty());
  }

  uint64_t hash_of(const Node& node, const ValueList& inputs) const {
    uint64_t hash = hash_mix(node.attrs.hash(), reinterpret_cast<uintptr_t>(node.op));
    for (const ValueId input : inputs) {
      hash = hash_mix(hash, static_cast<uint64_t>(input));
    }
    return hash;
  }

  // A new node with this op, these operands and attributes and results of the same types, or kNone.
  NodeId find_same(const Node& node, const ValueList& inputs, uint64_t hash) const {
    return known_.find(hash, [&](NodeId id) {
      const Node& other = graph_.nodes[id];
      return other.op == node.op && other.inputs == inputs && other.attrs == node.attrs &&
             std::equal(node.outputs.begin(), node.outputs.end(), other.outputs.begin(),
                        other.outputs.end(), [&](ValueId a, ValueId b) {
                          return value(a).shape == value(b).shape &&
                                 value(a).dtype == value(b).dtype;
                        });
    });
  }

  Graph& graph_;
  std::vector<ValueId> map_;  // new values, beside the old ones
  NodeId num_nodes_ = 0;      // new ones so far
  ValueId num_values_ = 0;
  HashIndex known_;  // new nodes
};

}  // namespace

Graph simplify(Graph graph) {
  Simplifier(graph).run();
  return graph;
}

}  // namespace meshtrain
