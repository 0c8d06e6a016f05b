#include "passes/schedule.h"

#include "passes/rewrite.h"

namespace meshtrain {

Graph reduce_gradients_early(Graph graph) {
  std::vector<std::vector<NodeId>> followers(graph.nodes.size());
  std::vector<bool> moves(graph.nodes.size(), false);
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op->name == "reshard" && node.phase == Phase::kBackward) {
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

}  // namespace meshtrain
