#include "passes/fuse.h"

#include <algorithm>

#include "ir/op.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxInstructions = 48;  // a tape's temporaries must fit into the first-level cache
constexpr size_t kMaxOperands = 16;

struct Group {
  std::vector<NodeId> nodes;
  SmallVector<ValueId, kMaxOperands> operands;  // distinct values from outside
};

bool can_fuse(const Node& node) {
  return node.op->elementwise && node.outputs.size() == 1 && !node.inputs.empty();
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph)
      : graph_(graph), group_of_(graph.nodes.size(), kNone), readers_(graph.values.size()) {
    for (NodeId n = 0; n < size(); ++n) {
      for (const ValueId input : graph.nodes[n].inputs) {
        if (can_fuse(graph.producer(input))) {  // others are not needed
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

  using GroupList = SmallVector<int, 4>;

  // With all groups that `n` reads as one where that is possible, else with the first that takes
  // it, else alone.
  void place(NodeId n) {
    GroupList read;
    for (const ValueId input : graph_.nodes[n].inputs) {
      const int group = group_of_[graph_.values[input].producer];
      if (group != kNone && std::find(read.begin(), read.end(), group) == read.end()) {
        read.push_back(group);
      }
    }
    if (read.size() > 1 && joins(n, read)) {
      for (size_t i = 1; i < read.size(); ++i) {
        merge(read[i], read[0]);
      }
      add(n, read[0]);
      return;
    }
    for (const int group : read) {
      if (joins(n, {group})) {
        add(n, group);
        return;
      }
    }
    groups_.emplace_back();
    add(n, static_cast<int>(groups_.size()) - 1);
  }

  // A group runs at its last node: no reader outside of `groups` may stand before `n`.
  bool joins(NodeId n, const GroupList& groups) const {
    size_t instructions = 0, operands = graph_.nodes[n].inputs.size();
    for (const int group : groups) {
      const Group& g = groups_[group];
      instructions += g.nodes.size();
      operands += g.operands.size();
      if (result(n).shape != result(g.nodes[0]).shape ||
          result(n).sharding != result(g.nodes[0]).sharding) {
        return false;
      }
    }
    if (instructions >= kMaxInstructions || operands > kMaxOperands) {
      return false;
    }
    const auto is_inside = [&](NodeId reader) {
      return std::find(groups.begin(), groups.end(), group_of_[reader]) != groups.end();
    };
    for (const int group : groups) {
      for (const NodeId member : groups_[group].nodes) {
        for (const NodeId reader : readers_[graph_.nodes[member].outputs[0]]) {
          if (reader < n && !is_inside(reader)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  void merge(int from, int into) {
    const Group moved = std::move(groups_[from]);
    groups_[from] = {};
    for (const NodeId n : moved.nodes) {
      group_of_[n] = into;
      groups_[into].nodes.push_back(n);
    }
    Group& g = groups_[into];
    const auto operands = std::move(g.operands);
    g.operands = {};
    for (const auto& list : {operands, moved.operands}) {
      for (const ValueId v : list) {
        add_operand(g, into, v);
      }
    }
  }

  // Scalar constants are instructions of the tape, not operands.
  void add_operand(Group& g, int group, ValueId v) const {
    if (!is_scalar_constant(graph_, v) && group_of_[graph_.values[v].producer] != group &&
        std::find(g.operands.begin(), g.operands.end(), v) == g.operands.end()) {
      g.operands.push_back(v);
    }
  }

  void add(NodeId n, int group) {
    group_of_[n] = group;
    Group& g = groups_[group];
    g.nodes.push_back(n);
    for (const ValueId input : graph_.nodes[n].inputs) {
      add_operand(g, group, input);
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
