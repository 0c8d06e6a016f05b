#include "passes/partition.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "mesh/reshard.h"
#include "passes/factors.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

class Partitioner {
 public:
  Partitioner(const Graph& graph, const DeviceMesh& mesh)
      : graph_(graph),
        mesh_(mesh),
        rewriter_(graph),
        uses_(graph.use_counts()),
        is_output_(graph.values.size()) {
    for (const Output& output : graph.outputs) {
      is_output_[output.value] = true;
    }
  }

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (node.inputs.empty()) {
        rewriter_.copy(node);  // sources are born as propagated
      } else if (node.op->name == "reshard" || node.op->name == "var_use") {
        forward_reshard(node);
      } else {
        partition_node(node);
      }
    }
    settle_ends();
    return rewriter_.finish();
  }

 private:
  Graph& to() { return rewriter_.to(); }
  const Sharding& actual(ValueId old_value) {
    return *to().values[rewriter_.mapped(old_value)].sharding;
  }
  const Sharding& desired(ValueId old_value) const { return *graph_.values[old_value].sharding; }

  // A layout change the graph asks for: the value under its new sharding replaces the node.
  void forward_reshard(const Node& node) {
    const ValueId result = node.outputs[0];
    rewriter_.map(result, reshard(rewriter_.mapped(node.inputs[0]), desired(result), node,
                                  graph_.values[result].sharding_origin));
  }

  void partition_node(const Node& node) {
    const ShardingRule rule = sharding_rule(graph_, node);
    const FactorAxes axes = assign(node, rule);
    const AxisMask kept = pending_to_keep(node, rule, axes);

    ValueList inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Sharding target{unproject(rule.operands[i], axes, rule, mesh_), 0, Combine::kSum};
      target.partial = actual(node.inputs[i]).partial & kept;
      inputs.push_back(reshard(rewriter_.mapped(node.inputs[i]), target, node,
                               graph_.values[node.inputs[i]].sharding_origin));
    }
    const NodeId id = rewriter_.copy_with(node, std::move(inputs));
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      to().values[to().nodes[id].outputs[r]].sharding = result_sharding(rule, axes, r, kept);
      settle_result(node, node.outputs[r]);
    }
  }

  Sharding result_sharding(const ShardingRule& rule, const FactorAxes& axes, size_t r,
                           AxisMask kept) const {
    Sharding out{unproject(rule.results[r], axes, rule, mesh_), kept, Combine::kSum};
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].kind == FactorKind::kReduce && !axes[f].empty() &&
          dim_of_factor(rule.results[r], static_cast<int>(f)) == kNone) {
        out.partial |= mask_of(axes[f]);
        out.combine = rule.factors[f].combine;
      }
    }
    return out;
  }

  // One candidate: factor `f` split by `axes`, as some tensor of the node has it.
  struct Candidate {
    int factor;
    AxisList axes;
    bool from_weight;
    int64_t bytes;  // of the tensors that have it so
  };

  std::vector<Candidate> candidates(const Node& node, const ShardingRule& rule) {
    std::vector<Candidate> out;
    const auto add = [&](ValueId value, const TensorFactors& factors) {
      const Projection projection = project(factors, desired(value).dims, rule, mesh_);
      const Value& v = graph_.values[value];
      const bool is_weight = v.producer != kNone && graph_.nodes[v.producer].op->name == "var_use";
      const int64_t bytes = num_elements(v.shape) * static_cast<int64_t>(dtype_size(v.dtype));
      for (size_t f = 0; f < rule.factors.size(); ++f) {
        if (projection.axes[f].empty() || rule.factors[f].kind == FactorKind::kGather) {
          continue;
        }
        const auto same = std::find_if(out.begin(), out.end(), [&](const Candidate& c) {
          return c.factor == static_cast<int>(f) && c.axes == projection.axes[f];
        });
        if (same == out.end()) {
          out.push_back({static_cast<int>(f), projection.axes[f], is_weight, bytes});
        } else {
          same->from_weight = same->from_weight || is_weight;
          same->bytes += bytes;
        }
      }
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      add(node.inputs[i], rule.operands[i]);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      add(node.outputs[i], rule.results[i]);
    }
    return out;
  }

  // The axes of each factor: greedily the best candidate whose factor and axes are still free.
  FactorAxes assign(const Node& node, const ShardingRule& rule) {
    std::vector<Candidate> ranked = candidates(node, rule);
    const auto kind = [&](const Candidate& c) { return rule.factors[c.factor].kind; };
    std::stable_sort(ranked.begin(), ranked.end(), [&](const Candidate& a, const Candidate& b) {
      if (a.from_weight != b.from_weight) {
        return a.from_weight;
      }
      if (a.bytes != b.bytes) {
        return a.bytes > b.bytes;
      }
      return kind(a) == FactorKind::kPass && kind(b) != FactorKind::kPass;
    });
    FactorAxes axes(rule.factors.size());
    AxisMask used = 0;
    for (const Candidate& c : ranked) {
      const int64_t size = rule.factors[c.factor].size;
      if (axes[c.factor].empty() && (mask_of(c.axes) & used) == 0 &&
          size % mesh_.size_of(c.axes) == 0) {
        axes[c.factor] = c.axes;
        used |= mask_of(c.axes);
      }
    }
    drop_interleaved(rule, axes);
    return axes;
  }

  // A factor behind one that is not full, in any tensor, cannot be split: its data would
  // interleave.
  void drop_interleaved(const ShardingRule& rule, FactorAxes& axes) const {
    bool changed = true;
    const auto check = [&](const std::vector<TensorFactors>& tensors) {
      for (const TensorFactors& tensor : tensors) {
        for (const FactorList& dim : tensor) {
          bool full = true;
          for (const int f : dim) {
            if (!full && !axes[f].empty()) {
              axes[f].clear();
              changed = true;
            }
            full = full && mesh_.size_of(axes[f]) == rule.factors[f].size;
          }
        }
      }
    };
    while (changed) {
      changed = false;
      check(rule.operands);
      check(rule.results);
    }
  }

  // Pending axes of the operands that may stay pending through this node: it is elementwise,
  // linear in them, and does not use them itself.
  AxisMask pending_to_keep(const Node& node, const ShardingRule&, const FactorAxes& axes) {
    if (!node.op->elementwise || !node.op->linearity) {
      return 0;
    }
    AxisMask pending = 0;
    uint32_t operands = 0;
    bool all_equal = true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Sharding& sharding = actual(node.inputs[i]);
      if (sharding.partial == 0) {
        continue;
      }
      if (sharding.combine != Combine::kSum) {
        return 0;
      }
      all_equal = all_equal && (pending == 0 || pending == sharding.partial);
      pending |= sharding.partial;
      operands |= 1u << i;
    }
    AxisMask used = 0;
    for (const AxisList& list : axes) {
      used |= mask_of(list);
    }
    if (pending == 0 || !all_equal || (used & pending) != 0) {
      return 0;
    }
    const Linearity linear = linearity(node);
    const bool one = (operands & (operands - 1)) == 0 && (operands & linear.any_one) == operands;
    const bool all = operands == linear.all;
    return one || all ? pending : 0;
  }

  // A result that is not pending goes to its propagated sharding at once; a pending one with
  // several readers, or one that the host reads, is settled once; one with a single reader travels
  // on.
  void settle_result(const Node& node, ValueId old_value) {
    const Sharding now = actual(old_value);
    const Sharding& wanted = desired(old_value);
    const bool must_settle = now.partial != 0 && (uses_[old_value] > 1 || is_output_[old_value] ||
                                                  node.op->name == "pin");
    if (must_settle || (now.partial == 0 && now != wanted)) {
      rewriter_.map(old_value, reshard(rewriter_.mapped(old_value), wanted, node,
                                       graph_.values[old_value].sharding_origin));
    }
  }

  // What the host reads is settled; what a variable takes has its storage layout.
  void settle_ends() {
    for (const Output& output : graph_.outputs) {
      const Sharding target = actual(output.value).settled();
      rewriter_.map(output.value, reshard(rewriter_.mapped(output.value), target,
                                          graph_.producer(output.value), output.name));
    }
    for (const Update& update : graph_.updates) {
      const Variable& variable = graph_.variables[update.variable];
      rewriter_.map(update.value, reshard(rewriter_.mapped(update.value), variable.layout.storage,
                                          graph_.producer(update.value), variable.path));
    }
  }

  // `value` (of the new graph) under `target`, through the planner's moves; shared by all readers.
  ValueId reshard(ValueId value, const Sharding& target, const Node& reader,
                  const std::string& origin) {
    const Sharding source = *to().values[value].sharding;
    Sharding wanted = target;
    wanted.combine = wanted.partial != 0 ? source.combine : Combine::kSum;
    if (source == wanted) {
      return value;
    }
    const auto key = std::make_pair(value, sharding_string(wanted, mesh_));
    if (const auto found = shared_.find(key); found != shared_.end()) {
      return found->second;
    }
    const Shape shape = to().values[value].shape;
    const DType dtype = to().values[value].dtype;
    ValueId now = value;
    for (const ReshardMove& move : plan_reshard(source, wanted, shape, dtype, mesh_)) {
      now = append_move(move, now, reader, origin);
    }
    shared_[key] = now;
    return now;
  }

  std::string unique_path(std::string path) {
    const int uses = path_uses_[path]++;
    return uses == 0 ? path : fmt::format("{}_{}", path, uses);
  }

  ValueId append_move(const ReshardMove& move, ValueId value, const Node& reader,
                      const std::string& origin) {
    const std::string_view name =
        move.kind == MoveKind::kSlice ? "shard_slice" : move_name(move.kind);
    Node node;
    node.op = &find_op(name);
    node.inputs = {value};
    // A permute names the axes that its dimension has afterwards.
    const AxisList& axes = move.kind == MoveKind::kPermute ? move.result.dims[move.dim] : move.axes;
    node.attrs["axes"] = std::vector<int64_t>(axes.begin(), axes.end());
    node.attrs["dim"] = int64_t{move.dim};
    node.attrs["to_dim"] = int64_t{move.to_dim};
    node.attrs["combine"] = std::string(combine_name(to().values[value].sharding->combine));
    node.attrs["cause"] = origin.empty() ? to().nodes[to().values[value].producer].path : origin;
    node.path = unique_path(reader.path + "/" + std::string(name));
    node.phase = reader.phase;
    const Value source = to().values[value];
    const ValueId result = rewriter_.append(std::move(node), {source.shape, source.dtype});
    to().values[result].sharding = move.result;
    to().values[result].sharding_origin = origin;
    return result;
  }

  const Graph& graph_;
  const DeviceMesh& mesh_;
  Rewriter rewriter_;
  std::vector<int> uses_;
  std::vector<bool> is_output_;
  std::map<std::pair<ValueId, std::string>, ValueId> shared_;
  std::map<std::string, int> path_uses_;
};

}  // namespace

Graph partition(const Graph& graph, const DeviceMesh& mesh) {
  return Partitioner(graph, mesh).run();
}

}  // namespace meshtrain
