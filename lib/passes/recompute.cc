#include "passes/recompute.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "passes/bucket.h"
#include "passes/fuse.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

constexpr int kMostNodes = 8;        // computed again for a value
constexpr int64_t kFewElements = 8;  // an operand with so many times fewer elements is kept

bool is_arithmetic(const OpDef& op) {
  constexpr std::string_view kNames[] = {"neg", "square", "abs", "relu", "add",
                                         "sub", "mul",    "max", "min"};
  return std::find(std::begin(kNames), std::end(kNames), op.name) != std::end(kNames);
}

class Recomputer {
 public:
  Recomputer(Graph& graph, const DeviceMesh& mesh)
      : graph_(graph), mesh_(mesh), groups_(fuse_groups(graph)), of_(graph.values.size()) {
    for (const Node& node : graph.nodes)
      find_expression(node);
    find_readers();
    choose();
  }

  bool has_any() const { return std::any_of(of_.begin(), of_.end(), is_again); }

  Graph run() {
    Rewriter rewriter(graph_);
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      Node& node = graph_.nodes[static_cast<size_t>(n)];
      ValueList inputs;
      for (const ValueId input : node.inputs)
        inputs.push_back(reads_again(node, input) ? copy_of(rewriter, input, reader(n))
                                                  : rewriter.mapped(input));
      rewriter.move_and_keep_values(node, std::move(inputs));
    }
    Graph out = rewriter.finish();
    remove_dead(out);
    return out;
  }

 private:
  // How a forward value is computed from one array.
  struct Expression {
    ValueId array = kNone;  // kNone: it is no such value
    ValueList inputs = {};  // of the node that computes it
    int nodes = 0, copies = 0;
    bool is_read = false;  // by the backward pass
    bool is_kept = false;  // for the backward pass, whatever is computed again
    bool is_again = false;
  };
  static bool is_again(const Expression& e) { return e.is_again; }

  Expression& of(ValueId v) { return of_[static_cast<size_t>(v)]; }
  const Value& value(ValueId v) const { return graph_.values[static_cast<size_t>(v)]; }
  int64_t bytes(ValueId v) const { return local_bytes(value(v), mesh_); }

  bool is_array_of(const Node& node, ValueId input) const {
    return kFewElements * num_elements(value(input).shape) >
           num_elements(value(node.outputs[0]).shape);
  }

  void find_expression(const Node& node) {
    if (node.phase != Phase::kForward || !is_arithmetic(*node.op))
      return;
    Expression& out = of(node.outputs[0]);
    ValueId array = kNone;
    int nodes = 1;
    for (const ValueId input : node.inputs) {
      if (!is_array_of(node, input))
        continue;
      const Expression& operand = of(input);
      const ValueId from = operand.array == kNone ? input : operand.array;
      const bool fits = (array == kNone || array == from) &&
                        value(from).shape == value(node.outputs[0]).shape &&
                        value(from).sharding == value(node.outputs[0]).sharding;
      if (!fits)
        return;
      array = from;
      nodes += operand.nodes;
    }
    if (array != kNone && nodes <= kMostNodes) {
      out.array = array;
      out.inputs = node.inputs;
      out.nodes = nodes;
    }
  }

  void find_readers() {
    for (const Node& node : graph_.nodes) {
      for (const ValueId input : node.inputs) {
        if (node.phase == Phase::kForward)
          continue;
        const bool is_fused = node.phase == Phase::kBackward && node.op->elementwise &&
                              value(node.outputs[0]).shape == value(input).shape;
        of(input).is_read = true;
        of(input).is_kept = of(input).is_kept || of(input).array == kNone || !is_fused;
      }
    }
    for (const Output& output : graph_.outputs)
      of(output.value).is_kept = true;
    for (const Update& update : graph_.updates)
      of(update.value).is_kept = true;
  }

  void choose() {
    std::map<ValueId, int64_t> saved;  // by array
    for (ValueId v = 0; v < static_cast<ValueId>(of_.size()); ++v) {
      if (is_candidate(v))
        saved[of(v).array] += bytes(v);
    }
    for (ValueId v = 0; v < static_cast<ValueId>(of_.size()); ++v) {
      const ValueId array = of(v).array;
      of(v).is_again = is_candidate(v) && (of(array).is_kept || saved.at(array) > bytes(array));
    }
  }
  bool is_candidate(ValueId v) { return of(v).array != kNone && of(v).is_read && !of(v).is_kept; }

  bool reads_again(const Node& node, ValueId input) {
    return node.phase == Phase::kBackward && of(input).is_again;
  }
  // Readers with one number share their copies.
  int reader(NodeId n) const {
    const int group = groups_[static_cast<size_t>(n)];
    return group == kNone ? -1 - n : group;
  }

  ValueId copy_of(Rewriter& rewriter, ValueId v, int reader) {
    if (of(v).array == kNone)
      return rewriter.mapped(v);
    const auto [found, is_new] = copies_.try_emplace({v, reader}, kNone);
    if (!is_new)
      return found->second;
    ValueList inputs;
    for (const ValueId input : of(v).inputs)
      inputs.push_back(copy_of(rewriter, input, reader));
    const ValueId original = rewriter.mapped(v);
    const Value type = rewriter.to().values[static_cast<size_t>(original)];
    Node node = rewriter.to().producer(original);
    node.inputs = std::move(inputs);
    node.path += of(v).copies == 0 ? "/again" : fmt::format("/again_{}", of(v).copies);
    ++of(v).copies;
    node.phase = Phase::kBackward;
    const ValueId copy = rewriter.append(std::move(node), {type.shape, type.dtype});
    Value& result = rewriter.to().values[static_cast<size_t>(copy)];
    result.sharding = type.sharding;
    result.sharding_origin = type.sharding_origin;
    return copies_[{v, reader}] = copy;
  }

  Graph& graph_;
  const DeviceMesh& mesh_;
  std::vector<int> groups_;
  std::vector<Expression> of_;  // by value
  std::map<std::pair<ValueId, int>, ValueId> copies_;
};

}  // namespace

Graph recompute_arithmetic(Graph graph, const DeviceMesh& mesh) {
  Recomputer recomputer(graph, mesh);
  return recomputer.has_any() ? recomputer.run() : std::move(graph);
}

}  // namespace meshtrain
