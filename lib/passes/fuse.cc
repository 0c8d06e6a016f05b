#include "passes/fuse.h"

#include <algorithm>

#include "ir/op.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxInstructions = 48;  // a tape's temporaries must stay in the first-level cache
constexpr size_t kMaxOperands = 16;

struct Group {
  std::vector<NodeId> nodes;
  SmallVector<ValueId, kMaxOperands> operands;  // distinct values from outside
};

bool can_fuse(const Node& node) {
  const std::string_view op = node.op->name;
  return node.op->elementwise && node.outputs.size() == 1 && !node.inputs.empty() &&
         op != "dropout" && op != "random_bits" && op != "optimizer_update" && op != "pin";
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph)
      : graph_(graph), group_of_(graph.nodes.size(), kNone), readers_(graph.values.size()) {
    for (NodeId n = 0; n < size(); ++n) {
      for (const ValueId input : graph.nodes[n].inputs) {
        if (can_fuse(graph.producer(input))) {  // nobody asks about others
          readers_[input].push_back(n);
        }
      }
    }
  }

  std::vector<int> run() {
    for (NodeId n = 0; n < size(); ++n) {
      if (can_fuse(graph_.nodes[n])) {
        place(n);
      }
    }
    for (NodeId n = 0; n < size(); ++n) {  // a group of one is no group
      if (group_of_[n] != kNone && groups_[group_of_[n]].nodes.size() == 1) {
        group_of_[n] = kNone;
      }
    }
    return group_of_;
  }

 private:
  NodeId size() const { return static_cast<NodeId>(graph_.nodes.size()); }

  const Value& result(NodeId n) const { return graph_.values[graph_.nodes[n].outputs[0]]; }

  void place(NodeId n) {
    for (const ValueId input : graph_.nodes[n].inputs) {
      const int group = group_of_[graph_.values[input].producer];
      if (group != kNone && joins(n, group)) {
        add(n, group);
        return;
      }
    }
    groups_.emplace_back();
    add(n, static_cast<int>(groups_.size()) - 1);
  }

  // The group runs at its last node: no reader outside of it may stand before `n`.
  bool joins(NodeId n, int group) const {
    const Group& g = groups_[group];
    if (g.nodes.size() >= kMaxInstructions ||
        g.operands.size() + graph_.nodes[n].inputs.size() > kMaxOperands ||
        result(n).shape != result(g.nodes[0]).shape ||
        result(n).sharding != result(g.nodes[0]).sharding) {
      return false;
    }
    for (const NodeId member : g.nodes) {
      for (const NodeId reader : readers_[graph_.nodes[member].outputs[0]]) {
        if (reader < n && group_of_[reader] != group) {
          return false;
        }
      }
    }
    return true;
  }

  void add(NodeId n, int group) {
    group_of_[n] = group;
    Group& g = groups_[group];
    g.nodes.push_back(n);
    for (const ValueId input : graph_.nodes[n].inputs) {
      if (group_of_[graph_.values[input].producer] != group) {
        if (std::find(g.operands.begin(), g.operands.end(), input) == g.operands.end()) {
          g.operands.push_back(input);
        }
      }
    }
  }

  const Graph& graph_;
  std::vector<int> group_of_;
  std::vector<SmallVector<NodeId, 2>> readers_;  // of results of nodes that can be fused
  std::vector<Group> groups_;
};

}  // namespace

std::vector<int> fuse_groups(const Graph& graph) {
  return Fuser(graph).run();
}

}  // namespace meshtrain
