#include "passes/recompute.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "ir/op.h"
#include "passes/bucket.h"
#include "passes/fuse.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

constexpr int kMostNodes = 8;        // computed again for a value
constexpr int64_t kFewElements = 8;  // an operand with so many times fewer elements is kept

class Recomputer {
 public:
  Recomputer(Graph& graph, const DeviceMesh& mesh)
      : graph_(graph), mesh_(mesh), parts_(graph.values.size()) {
    find_readers();
    for (const Node& node : graph.nodes) {
      find_expression(node);
      paths_.insert(node.path);
    }
    choose();
  }

  bool has_any() const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const Part& part) { return part.is_again; });
  }

  Graph run() {
    groups_ = fuse_groups(graph_);
    Rewriter rewriter(graph_);
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      Node& node = graph_.nodes[n];
      ValueList inputs;
      for (const ValueId input : node.inputs) {
        const bool is_again = node.phase == Phase::kBackward && of(input).is_again;
        inputs.push_back(is_again ? copy_of(rewriter, input, reader(n)) : rewriter.mapped(input));
      }
      rewriter.move_and_keep_values(node, std::move(inputs));
    }
    Graph out = rewriter.finish();
    remove_dead(out);
    return out;
  }

 private:
  // A value, as the backward pass sees it.
  struct Part {
    bool is_read = false;   // there
    bool is_kept = false;   // for it, whatever is computed again
    ValueId array = kNone;  // that it is computed of; kNone: not of one alone
    ValueList inputs = {};  // of the node that does so
    int nodes = 0;
    bool is_again = false;
  };

  Part& of(ValueId v) { return parts_[v]; }
  const Value& value(ValueId v) const { return graph_.values[v]; }
  int64_t bytes(ValueId v) const { return local_bytes(value(v), mesh_); }

  void find_readers() {
    for (const Node& node : graph_.nodes) {
      if (node.phase == Phase::kForward)
        continue;
      for (const ValueId input : node.inputs) {
        const bool is_fused = node.phase == Phase::kBackward && node.op->elementwise &&
                              value(node.outputs[0]).shape == value(input).shape;
        of(input).is_read = true;
        of(input).is_kept = of(input).is_kept || !is_fused;
      }
    }
    for (const Output& output : graph_.outputs)
      of(output.value).is_kept = true;
    for (const Update& update : graph_.updates)
      of(update.value).is_kept = true;
  }

  void find_expression(const Node& node) {
    if (node.phase == Phase::kForward && node.op->elementwise && !node.op->is_costly &&
        !node.op->random && !of(node.outputs[0]).is_kept)
      set_array(node);
    for (const ValueId output : node.outputs)
      of(output).is_kept = of(output).is_kept || (of(output).is_read && of(output).array == kNone);
  }

  void set_array(const Node& node) {
    const Value& result = value(node.outputs[0]);
    ValueId array = kNone;
    int nodes = 1;
    for (const ValueId input : node.inputs) {
      if (num_elements(value(input).shape) <= num_elements(result.shape) / kFewElements)
        continue;
      const ValueId from = of(input).array == kNone ? input : of(input).array;
      if ((array != kNone && array != from) || value(from).shape != result.shape ||
          value(from).sharding != result.sharding)
        return;
      array = from;
      nodes += of(input).nodes;
    }
    if (array == kNone || nodes > kMostNodes)
      return;
    Part& part = of(node.outputs[0]);
    part.array = array;
    part.inputs = node.inputs;
    part.nodes = nodes;
  }

  // An array that is not kept anyway must be worth it.
  void choose() {
    std::map<ValueId, int64_t> saved;
    const auto is_candidate = [](const Part& part) { return part.is_read && part.array != kNone; };
    for (ValueId v = 0; v < static_cast<ValueId>(parts_.size()); ++v) {
      if (is_candidate(of(v)))
        saved[of(v).array] += bytes(v);
    }
    for (Part& part : parts_) {
      part.is_again = is_candidate(part) &&
                      (of(part.array).is_kept || saved.at(part.array) > bytes(part.array));
    }
  }

  // Readers with one number share their copies.
  int reader(NodeId n) const { return groups_[n] == kNone ? -1 - n : groups_[n]; }

  std::string free_path(const std::string& wanted) {
    std::string path = wanted;
    for (int i = 1; !paths_.insert(path).second; ++i)
      path = fmt::format("{}_{}", wanted, i);
    return path;
  }

  ValueId copy_of(Rewriter& rewriter, ValueId v, int reader) {
    ValueId& copy = copies_.try_emplace({v, reader}, kNone).first->second;
    if (copy != kNone)
      return copy;
    ValueList inputs;
    for (const ValueId input : of(v).inputs) {
      const bool is_again = of(input).array == of(v).array;
      inputs.push_back(is_again ? copy_of(rewriter, input, reader) : rewriter.mapped(input));
    }
    const ValueId original = rewriter.mapped(v);
    Node node = rewriter.to().producer(original);
    node.inputs = std::move(inputs);
    node.path = free_path(node.path + "/again");  // which remat may have given to a copy
    node.phase = Phase::kBackward;
    const Value like = rewriter.to().values[original];
    copy = rewriter.append(std::move(node), {like.shape, like.dtype});
    Value& result = rewriter.to().values[copy];
    result.sharding = like.sharding;
    result.sharding_origin = like.sharding_origin;
    return copy;
  }

  Graph& graph_;
  const DeviceMesh& mesh_;
  std::vector<Part> parts_;  // by value
  std::vector<int> groups_;
  std::map<std::pair<ValueId, int>, ValueId> copies_;
  std::unordered_set<std::string> paths_;
};

}  // namespace

Graph recompute_arithmetic(Graph graph, const DeviceMesh& mesh) {
  Recomputer recomputer(graph, mesh);
  return recomputer.has_any() ? recomputer.run() : std::move(graph);
}

}  // namespace meshtrain
