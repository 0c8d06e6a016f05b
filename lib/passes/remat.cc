#include "passes/remat.h"

#include <unordered_map>

#include "ir/op.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

class Rematerializer {
 public:
  Rematerializer(Graph& graph, std::span<const RematRegion> regions)
      : regions_(regions),
        nodes_(std::move(graph.nodes)),
        rewriter_(graph),
        again_in_(graph.values.size(), nullptr),
        copies_(graph.values.size(), kNone) {
    for (size_t i = 0; i < regions.size(); ++i)
      by_prefix_.emplace(regions[i].prefix, i);
    find_recomputed(graph);
  }

  Graph run() {
    for (Node& node : nodes_) {
      const Node original = node;  // moving takes its results
      if (node.phase != Phase::kBackward) {
        rewriter_.move_and_keep_values(node, mapped(original.inputs));
      } else {
        rewriter_.move_and_keep_values(node,
                                       with_copies(original.inputs, region_of(original.path)));
      }
      node = original;  // as copies need it
    }
    return rewriter_.finish();
  }

 private:
  // The region whose prefix is the first part of the path, or null.
  const RematRegion* region_of(const std::string& path) const {
    for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
      const auto found = by_prefix_.find(path.substr(0, at));
      if (found != by_prefix_.end())
        return &regions_[found->second];
    }
    return nullptr;
  }

  // The kept part that the node belongs to, or null.
  static const std::string* part_of(const RematRegion& region, const std::string& path) {
    for (const std::string& part : region.kept_parts) {
      if (path.compare(region.prefix.size() + 1, part.size() + 1, part + "/") == 0)
        return &part;
    }
    return nullptr;
  }

  static bool may_repeat(const Node& node) {
    const OpKind kind = node.op->kind;
    return node.phase == Phase::kForward && !node.inputs.empty() && kind != OpKind::kParameter &&
           kind != OpKind::kVarUse && (kind == OpKind::kPin || !node.op->is_unique) &&
           node.op->name != "top_k" && node.op->name != "argmax";
  }

  static bool is_product(const Node& node) {
    return node.op->is_product || node.op->name == "attention";
  }

  void find_recomputed(const Graph& graph) {
    std::vector<const std::string*> parts(graph.values.size(), nullptr);
    for (const Node& node : nodes_) {
      const RematRegion* region = region_of(node.path);
      if (region == nullptr || !may_repeat(node))
        continue;
      const bool is_again = !region->keeps_products || !is_product(node);
      for (const ValueId output : node.outputs) {
        again_in_[static_cast<size_t>(output)] = is_again ? region : nullptr;
        parts[static_cast<size_t>(output)] = part_of(*region, node.path);
      }
    }
    for (const Node& node : nodes_) {  // what leaves a kept part
      const RematRegion* region = node.phase == Phase::kForward ? region_of(node.path) : nullptr;
      const std::string* own = region == nullptr ? nullptr : part_of(*region, node.path);
      for (const ValueId input : node.inputs) {
        const std::string* part = parts[static_cast<size_t>(input)];
        if (node.phase == Phase::kForward && part != nullptr && part != own)
          again_in_[static_cast<size_t>(input)] = nullptr;
      }
    }
    for (const Node& node : nodes_) {
      for (const ValueId output : node.outputs) {
        if (static_cast<size_t>(output) >= producers_.size())
          producers_.resize(static_cast<size_t>(output) + 1, nullptr);
        producers_[static_cast<size_t>(output)] = &node;
      }
    }
  }

  ValueList mapped(const ValueList& inputs) const {
    ValueList out;
    for (const ValueId input : inputs)
      out.push_back(rewriter_.mapped(input));
    return out;
  }

  // Copies of what the same region computes: what it takes from another one is kept.
  ValueList with_copies(const ValueList& inputs, const RematRegion* region) {
    ValueList out;
    for (const ValueId input : inputs) {
      const bool is_again = region != nullptr && again_in_[static_cast<size_t>(input)] == region;
      out.push_back(is_again ? copy_of(input) : rewriter_.mapped(input));
    }
    return out;
  }

  // All results of the value's node are copied at once.
  ValueId copy_of(ValueId value) {
    ValueId& copy = copies_[static_cast<size_t>(value)];
    if (copy != kNone)
      return copy;
    Node node = *producers_[static_cast<size_t>(value)];
    const ValueList outputs = node.outputs;
    ValueList inputs = with_copies(node.inputs, again_in_[static_cast<size_t>(value)]);
    node.attrs["remat"] = int64_t{1};
    node.path += "/again";
    node.phase = Phase::kBackward;
    ValueList originals;
    for (const ValueId output : outputs)
      originals.push_back(rewriter_.mapped(output));
    rewriter_.move_and_keep_values(node, std::move(inputs));
    for (size_t r = 0; r < outputs.size(); ++r) {
      copies_[static_cast<size_t>(outputs[r])] = rewriter_.mapped(outputs[r]);
      rewriter_.map(outputs[r], originals[r]);
    }
    return copies_[static_cast<size_t>(value)];
  }

  std::span<const RematRegion> regions_;
  std::unordered_map<std::string, size_t> by_prefix_;
  std::vector<Node> nodes_;
  Rewriter rewriter_;
  std::vector<const Node*> producers_;        // by value
  std::vector<const RematRegion*> again_in_;  // by value: where it is computed again; null: kept
  std::vector<ValueId> copies_;               // by value, in the new graph
};

}  // namespace

Graph rematerialize(Graph graph, std::span<const RematRegion> regions) {
  return regions.empty() ? std::move(graph) : Rematerializer(graph, regions).run();
}

}  // namespace meshtrain
