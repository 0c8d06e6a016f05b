// Reverse-mode differentiation: one sweep from the loss back, over the nodes that depend on `wrt`,
// asking each op for the cotangents of its operands.
#include <algorithm>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace meshtrain {
namespace {

class Sweep {
 public:
  Sweep(Builder& builder, ValueId loss, std::span<const ValueId> wrt)
      : builder_(builder), first_node_(num_nodes()), first_value_(num_values()) {
    find_active(wrt);
    terms_.resize(first_value_);
    add_term(loss, builder.constant(1, builder.dtype(loss)));
    for (NodeId id = builder.graph().values[loss].producer; id >= 0; --id) {
      visit(id);
    }
    for (ValueId value : wrt) {
      results_.push_back(cotangent(value));
    }
    prune();
  }

  std::vector<ValueId> take() { return std::move(results_); }

 private:
  NodeId num_nodes() const { return static_cast<NodeId>(builder_.graph().nodes.size()); }
  ValueId num_values() const { return static_cast<ValueId>(builder_.graph().values.size()); }

  // Active values are those that change with `wrt`.
  void find_active(std::span<const ValueId> wrt) {
    active_.assign(first_value_, false);
    for (ValueId value : wrt) {
      active_[value] = true;
    }
    for (const Node& node : builder_.graph().nodes) {
      const bool active = std::any_of(node.inputs.begin(), node.inputs.end(),
                                      [&](ValueId input) { return active_[input]; });
      for (ValueId output : node.outputs) {
        active_[output] = active_[output] || active;
      }
    }
  }

  void add_term(ValueId value, ValueId term) {
    terms_[value].push_back(term);
    tie(term, value);
  }

  void tie(ValueId cotangent, ValueId value) {
    Value& v = builder_.graph().values[cotangent];
    if (cotangent >= first_value_ && v.cotangent_of == kNone) {
      v.cotangent_of = value;
    }
  }

  bool is_product(ValueId value) const {
    const Graph& graph = builder_.graph();
    const NodeId producer = graph.values[value].producer;
    return producer != kNone && graph.nodes[producer].op->is_product;
  }

  // The sum of all terms: products first, else in the order in which they were found. With sharded
  // weights products are partial sums, so that their sum is reduced once: attention's query, key
  // and value of one input.
  ValueId cotangent(ValueId value) {
    std::vector<ValueId>& terms = terms_[value];
    if (terms.empty()) {
      return kNone;
    }
    if (terms.size() > 2) {
      std::stable_partition(terms.begin(), terms.end(),
                            [&](ValueId term) { return is_product(term); });
    }
    ValueId sum = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      sum = builder_.add(sum, terms[i]);
      tie(sum, value);
    }
    terms = {sum};
    return sum;
  }

  void visit(NodeId id) {
    const Node node = builder_.graph().nodes[id];  // a copy: the vjp appends to the nodes
    const bool any_active = std::any_of(node.inputs.begin(), node.inputs.end(),
                                        [&](ValueId input) { return active_[input]; });
    const bool any_cotangent = std::any_of(node.outputs.begin(), node.outputs.end(),
                                           [&](ValueId output) { return !terms_[output].empty(); });
    if (!any_active || !any_cotangent || !node.op->vjp) {
      return;
    }
    builder_.set_scope_path(node.path + "/grad");
    std::vector<ValueId> cotangents;
    for (ValueId output : node.outputs) {
      cotangents.push_back(cotangent(output));
    }
    const std::vector<ValueId> terms = node.op->vjp(builder_, node, cotangents);
    MESHTRAIN_CHECK(terms.size() == node.inputs.size(),
                    "the gradient of {} has {} terms for {} operands", node.path, terms.size(),
                    node.inputs.size());
    for (size_t i = 0; i < terms.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (terms[i] == kNone || !active_[input] || !is_floating(builder_.dtype(input))) {
        continue;
      }
      MESHTRAIN_CHECK(builder_.shape(terms[i]) == builder_.shape(input) &&
                          builder_.dtype(terms[i]) == builder_.dtype(input),
                      "the gradient of operand {} of {} is {} {}, for {} {}", i, node.path,
                      dtype_name(builder_.dtype(terms[i])), shape_string(builder_.shape(terms[i])),
                      dtype_name(builder_.dtype(input)), shape_string(builder_.shape(input)));
      add_term(input, terms[i]);
    }
  }

  // Gradients of operands that were not requested (a constant, an input) are removed again.
  void prune() {
    Graph& graph = builder_.graph();
    std::vector<bool> needed(graph.values.size(), false);
    for (ValueId value : results_) {
      if (value != kNone) {
        needed[value] = true;
      }
    }
    std::vector<bool> keep(graph.nodes.size(), true);
    for (NodeId id = num_nodes() - 1; id >= first_node_; --id) {
      const Node& node = graph.nodes[id];
      keep[id] = std::any_of(node.outputs.begin(), node.outputs.end(),
                             [&](ValueId output) { return needed[output]; });
      if (keep[id]) {
        for (ValueId input : node.inputs) {
          needed[input] = true;
        }
      }
    }
    compact(keep);
  }

  void compact(const std::vector<bool>& keep) {
    Graph& graph = builder_.graph();
    std::vector<ValueId> renumbered(graph.values.size(), kNone);
    for (ValueId value = 0; value < first_value_; ++value) {
      renumbered[value] = value;
    }
    NodeId next_node = first_node_;
    ValueId next_value = first_value_;
    for (NodeId id = first_node_; id < static_cast<NodeId>(keep.size()); ++id) {
      if (!keep[id]) {
        continue;
      }
      Node node = std::move(graph.nodes[id]);
      for (ValueId& input : node.inputs) {
        input = renumbered[input];
      }
      for (ValueId& output : node.outputs) {
        renumbered[output] = next_value;
        Value value = std::move(graph.values[output]);
        value.producer = next_node;
        output = next_value;
        graph.values[next_value++] = std::move(value);
      }
      graph.nodes[next_node++] = std::move(node);
    }
    graph.nodes.resize(next_node);
    graph.values.resize(next_value);
    for (ValueId& value : results_) {
      value = value == kNone ? kNone : renumbered[value];
    }
  }

  Builder& builder_;
  NodeId first_node_;
  ValueId first_value_;
  std::vector<bool> active_;
  std::vector<std::vector<ValueId>> terms_;  // per forward value
  std::vector<ValueId> results_;
};

}  // namespace

std::vector<ValueId> gradients(Builder& builder, ValueId loss, std::span<const ValueId> wrt) {
  MESHTRAIN_CHECK(builder.shape(loss).empty() && is_floating(builder.dtype(loss)),
                  "the loss is {} {}, no floating-point scalar", dtype_name(builder.dtype(loss)),
                  shape_string(builder.shape(loss)));
  const Phase phase = builder.phase();
  const std::string scope = builder.scope_path();
  builder.set_phase(Phase::kBackward);
  std::vector<ValueId> results = Sweep(builder, loss, wrt).take();
  builder.set_scope_path(scope);
  builder.set_phase(phase);
  return results;
}

}  // namespace meshtrain
