#include "passes/simplify.h"

#include <map>
#include <tuple>

#include "ir/op.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes) {
      std::vector<ValueId> inputs;
      for (const ValueId input : node.inputs) {
        inputs.push_back(rewriter_.mapped(input));
      }
      if (const ValueId same = identity_of(node, inputs); same != kNone) {
        rewriter_.map(node.outputs[0], same);
        continue;
      }
      skip_broadcasts(node, inputs);
      if (!reuse(node, inputs)) {
        const NodeId id = rewriter_.copy_with(node, inputs);
        remember(node, inputs, id);
      }
    }
    return remove_dead(rewriter_.finish());
  }

 private:
  Graph& to() { return rewriter_.to(); }
  const Node& producer(ValueId v) { return to().nodes[to().values[v].producer]; }

  bool is_scalar_constant(ValueId v, double value) {
    const Node& node = producer(v);
    return node.op->name == "constant" && to().values[v].shape.empty() &&
           node.attr_double("value") == value;
  }

  // The operand that the node's only result equals, or kNone.
  ValueId identity_of(const Node& node, const std::vector<ValueId>& inputs) {
    const std::string_view op = node.op->name;
    if (node.outputs.size() != 1 || inputs.empty()) {
      return kNone;
    }
    const Value& result = graph_.values[node.outputs[0]];
    const auto same_type = [&](ValueId v) {
      return to().values[v].shape == result.shape && to().values[v].dtype == result.dtype;
    };
    if (!same_type(inputs[0])) {
      return kNone;
    }
    if (op == "cast" || op == "broadcast" || op == "reshape") {
      return inputs[0];
    }
    if (((op == "mul" || op == "div") && is_scalar_constant(inputs[1], 1)) ||
        ((op == "add" || op == "sub") && is_scalar_constant(inputs[1], 0))) {
      return inputs[0];
    }
    return kNone;
  }

  // Elementwise ops broadcast by themselves: read what a broadcast_to reads when the result's
  // shape stays the same.
  void skip_broadcasts(const Node& node, std::vector<ValueId>& inputs) {
    if (!node.op->elementwise || inputs.size() < 2 || node.op->name == "optimizer_update" ||
        node.op->name == "dropout") {
      return;
    }
    const Shape& wanted = graph_.values[node.outputs[0]].shape;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (producer(inputs[i]).op->name != "broadcast") {
        continue;
      }
      std::vector<ValueId> tried = inputs;
      tried[i] = producer(inputs[i]).inputs[0];
      Shape shape = to().values[tried[0]].shape;
      for (size_t k = 1; k < tried.size(); ++k) {
        shape = broadcast_shapes(shape, to().values[tried[k]].shape);
      }
      if (shape == wanted) {
        inputs = std::move(tried);
      }
    }
  }

  using Key = std::tuple<const OpDef*, std::vector<ValueId>, Attrs, Shape, DType>;

  bool may_share(const Node& node) const {
    // Pins and layout changes are places, not values; whole tensors of constants would couple the
    // layouts of unrelated readers.
    const std::string_view op = node.op->name;
    const bool source = op == "iota" || op == "constant";
    return op != "input" && op != "parameter" && op != "pin" && op != "reshard" &&
           op != "optimizer_update" && (!source || graph_.values[node.outputs[0]].shape.empty());
  }

  Key key(const Node& node, const std::vector<ValueId>& inputs) const {
    const Value& result = graph_.values[node.outputs[0]];
    return {node.op, inputs, node.attrs, result.shape, result.dtype};
  }

  bool reuse(const Node& node, const std::vector<ValueId>& inputs) {
    if (!may_share(node)) {
      return false;
    }
    const auto found = known_.find(key(node, inputs));
    if (found == known_.end()) {
      return false;
    }
    const Node& same = to().nodes[found->second];
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      rewriter_.map(node.outputs[r], same.outputs[r]);
    }
    return true;
  }

  void remember(const Node& node, const std::vector<ValueId>& inputs, NodeId id) {
    if (may_share(node)) {
      known_.emplace(key(node, inputs), id);
    }
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::map<Key, NodeId> known_;
};

}  // namespace

Graph simplify(const Graph& graph) {
  return Simplifier(graph).run();
}

}  // namespace meshtrain
