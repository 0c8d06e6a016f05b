#include "passes/simplify.h"

#include "base/hash.h"
#include "base/hash_index.h"
#include "ir/op.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph run() {
    for (Node& node : graph_.nodes) {
      ValueList inputs;
      for (const ValueId input : node.inputs) {
        inputs.push_back(rewriter_.mapped(input));
      }
      if (const ValueId same = identity_of(node, inputs); same != kNone) {
        rewriter_.map(node.outputs[0], same);
        continue;
      }
      skip_broadcasts(node, inputs);
      if (!may_share(node)) {
        rewriter_.move_with(node, std::move(inputs));
        continue;
      }
      const uint64_t hash = hash_of(node, inputs);
      if (const NodeId same = find_same(node, inputs, hash); same != kNone) {
        for (size_t r = 0; r < node.outputs.size(); ++r) {
          rewriter_.map(node.outputs[r], to().nodes[same].outputs[r]);
        }
      } else {
        known_.add(hash, rewriter_.move_with(node, std::move(inputs)));
      }
    }
    Graph out = rewriter_.finish();
    remove_dead(out);
    return out;
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
  ValueId identity_of(const Node& node, const ValueList& inputs) {
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
  void skip_broadcasts(const Node& node, ValueList& inputs) {
    if (!node.op->elementwise || inputs.size() < 2 || node.op->name == "optimizer_update" ||
        node.op->name == "dropout") {
      return;
    }
    const Shape& wanted = graph_.values[node.outputs[0]].shape;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (producer(inputs[i]).op->name != "broadcast") {
        continue;
      }
      ValueList tried = inputs;
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

  bool may_share(const Node& node) const {
    // Pins and layout changes are places, not values; whole tensors of constants would couple the
    // layouts of unrelated readers.
    const std::string_view op = node.op->name;
    const bool source = op == "iota" || op == "constant";
    return op != "input" && op != "parameter" && op != "pin" && op != "reshard" &&
           op != "optimizer_update" && (!source || graph_.values[node.outputs[0]].shape.empty());
  }

  uint64_t hash_of(const Node& node, const ValueList& inputs) const {
    uint64_t hash = hash_mix(node.attrs.hash(), reinterpret_cast<uintptr_t>(node.op));
    for (const ValueId input : inputs) {
      hash = hash_mix(hash, static_cast<uint64_t>(input));
    }
    return hash;
  }

  // A node of the new graph with this op, these operands and attributes, or kNone. Its results are
  // the same then, as long as the attributes say their types.
  NodeId find_same(const Node& node, const ValueList& inputs, uint64_t hash) {
    const Value& result = graph_.values[node.outputs[0]];
    return known_.find(hash, [&](NodeId id) {
      const Node& other = to().nodes[id];
      const Value& value = to().values[other.outputs[0]];
      return other.op == node.op && other.inputs == inputs && other.attrs == node.attrs &&
             value.shape == result.shape && value.dtype == result.dtype;
    });
  }

  Graph& graph_;
  Rewriter rewriter_;
  HashIndex known_;  // nodes of the new graph
};

}  // namespace

Graph simplify(Graph graph) {
  return Simplifier(graph).run();
}

}  // namespace meshtrain
