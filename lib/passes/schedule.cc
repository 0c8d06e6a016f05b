#include "passes/schedule.h"

#include <algorithm>

#include "passes/bucket.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

bool is_gathered_use(const Graph& graph, const Node& node) {
  return node.op->kind == OpKind::kVarUse &&
         graph.values[node.outputs[0]].sharding != graph.values[node.inputs[0]].sharding;
}

// Writes the new graph of gather_weights_again.
class Regather {
 public:
  explicit Regather(Graph& graph)
      : graph_(graph),
        rewriter_(graph),
        made_of_(graph.values.size(), kNone),
        is_read_(graph.values.size()),
        again_(graph.values.size(), kNone) {}

  Graph run() {
    for (Node& node : graph_.nodes) {
      if (node.phase == Phase::kForward) {
        note(node);
      }
      ValueList inputs;
      for (const ValueId input : node.inputs) {
        inputs.push_back(node.phase == Phase::kBackward ? again(input) : rewriter_.mapped(input));
      }
      rewriter_.move_and_keep_values(node, std::move(inputs));
    }
    return rewriter_.finish();
  }

 private:
  void note(const Node& node) {
    for (const ValueId input : node.inputs) {
      is_read_[input] = true;
    }
    const ValueId result = node.outputs[0];
    const bool is_cast = node.op->kind == OpKind::kCast && made_of_[node.inputs[0]] != kNone;
    if (is_cast || is_gathered_use(graph_, node)) {
      made_of_[result] = node.inputs[0];
    }
  }

  // Returns the value of the new graph that the backward pass reads for `value`.
  ValueId again(ValueId value) {
    const ValueId first = rewriter_.mapped(value);
    if (made_of_[value] == kNone || !is_read_[value]) {
      return first;
    }
    if (again_[value] == kNone) {
      const bool is_cast = made_of_[made_of_[value]] != kNone;
      kept_ = is_cast || kept_ != kNone ? kept_ : value;
      const ValueId operand = rewriter_.mapped(made_of_[value]);
      const ValueId fresh = is_cast ? again(made_of_[value]) : operand;
      const bool keeps = is_cast ? fresh == operand : kept_ == value;
      again_[value] = keeps ? first : made_again(first, fresh);
    }
    return again_[value];
  }

  ValueId made_again(ValueId first, ValueId operand) {
    const Graph& to = rewriter_.to();
    const Node& maker = to.producer(first);
    Node node;
    node.op = maker.op;
    node.inputs = {operand};
    node.attrs = maker.attrs;
    node.path = maker.path + "/again";
    node.phase = Phase::kBackward;
    const ValueId result = rewriter_.append(std::move(node), {to.shape(first), to.dtype(first)});
    Value& value = rewriter_.to().values[result];
    value.sharding = to.values[first].sharding;
    value.sharding_origin = to.values[first].sharding_origin;
    return result;
  }

  Graph& graph_;
  Rewriter rewriter_;
  std::vector<ValueId> made_of_;  // uses of gathered weights and casts of them: their operands
  std::vector<bool> is_read_;     // by the forward pass
  std::vector<ValueId> again_;    // in the new graph
  ValueId kept_ = kNone;          // the use that the backward pass reads first
};

}  // namespace

Graph reduce_gradients_early(Graph graph) {
  std::vector<std::vector<NodeId>> followers(graph.nodes.size());
  std::vector<bool> moves(graph.nodes.size(), false);
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op->kind == OpKind::kReshard && node.phase == Phase::kBackward) {
      followers[graph.values[node.inputs[0]].producer].push_back(n);
      moves[n] = true;
    }
  }
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    if (moves[n]) {
      continue;
    }
    rewriter.move(graph.nodes[n]);
    for (const NodeId follower : followers[n]) {
      rewriter.move(graph.nodes[follower]);
    }
  }
  return rewriter.finish();
}

Graph gather_weights_again(Graph graph, const DeviceMesh& mesh, int64_t least) {
  const auto bytes = [&](ValueId v) { return local_bytes(graph.values[v], mesh); };
  int64_t gathered = 0;
  for (const Node& node : graph.nodes) {
    if (is_gathered_use(graph, node)) {
      gathered += bytes(node.outputs[0]);
    } else if (node.op->kind == OpKind::kCast &&
               is_gathered_use(graph, graph.producer(node.inputs[0]))) {
      gathered -= std::max<int64_t>(bytes(node.inputs[0]) - bytes(node.outputs[0]), 0);
    }
  }
  return gathered > least ? Regather(graph).run() : graph;
}

}  // namespace meshtrain
