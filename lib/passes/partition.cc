#include "passes/partition.h"

#include <unordered_map>

#include "base/hash.h"
#include "base/hash_index.h"
#include "ir/op.h"
#include "ir/signatures.h"
#include "mesh/reshard.h"
#include "passes/assign_factors.h"
#include "passes/factors.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

class Partitioner {
 public:
  Partitioner(Graph& graph, const DeviceMesh& mesh)
      : graph_(graph),
        mesh_(mesh),
        rewriter_(graph),
        uses_(graph.use_counts()),
        is_output_(graph.values.size()),
        is_weight_(graph.values.size()),
        casts_first_(graph.values.size()),
        moved_to_(graph.nodes.size(), kNone) {
    for (const Output& output : graph.outputs) {
      is_output_[output.value] = true;
    }
    for (const Node& node : graph.nodes) {
      if (narrows(node)) {
        const ValueId input = node.inputs[0];
        casts_first_[input] = graph.producer(input).op->name == "var_use" && uses_[input] == 1;
      } else if (node.op->name == "reshard") {
        reshard_before_casts(node);
      }
    }
  }

  Graph run() {
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      Node& node = graph_.nodes[n];
      if (node.inputs.empty()) {
        moved_to_[n] = rewriter_.move_and_keep_values(node, {});  // sources are born as propagated
      } else if (node.op->name == "reshard" || node.op->name == "var_use") {
        is_weight_[node.outputs[0]] = node.op->name == "var_use";
        if (casts_first_[node.outputs[0]]) {
          rewriter_.map(node.outputs[0], rewriter_.mapped(node.inputs[0]));
        } else {
          forward_reshard(node);
        }
      } else if (node.op->name == "cast" && casts_first_[node.inputs[0]]) {
        moved_to_[n] = cast_stored_weight(node);
      } else {
        moved_to_[n] = partition_node(node);
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

  // A cast to a type of fewer bytes: a pending sum must be settled before it.
  bool narrows(const Node& node) const {
    return node.op->name == "cast" &&
           dtype_size(graph_.dtype(node.outputs[0])) < dtype_size(graph_.dtype(node.inputs[0]));
  }

  // A gradient that is rounded on its way to a layout takes that layout where it is settled.
  void reshard_before_casts(const Node& reshard) {
    SmallVector<ValueId, 4> casts;
    size_t settled = 0;  // of them, those from the settled value on
    ValueId value = reshard.inputs[0];
    while (uses_[value] == 1 && graph_.producer(value).op->name == "cast") {
      casts.push_back(value);
      settled = narrows(graph_.producer(value)) ? casts.size() : settled;
      value = graph_.producer(value).inputs[0];
    }
    const Value& wanted = graph_.values[reshard.outputs[0]];
    for (size_t i = 0; i < settled; ++i) {
      graph_.values[casts[i]].sharding = wanted.sharding;
      const ValueId operand = graph_.producer(casts[i]).inputs[0];
      graph_.values[operand].sharding_origin = wanted.sharding_origin;
    }
  }

  // A layout change the graph asks for: the value under its new sharding replaces the node.
  void forward_reshard(const Node& node) {
    const ValueId result = node.outputs[0];
    rewriter_.map(result, reshard(rewriter_.mapped(node.inputs[0]), desired(result),
                                  {node.path, node.phase}, graph_.values[result].sharding_origin));
  }

  // A weight that is used in fewer bytes than it is stored in is cast where it lies and moved then.
  NodeId cast_stored_weight(Node& node) {
    const ValueId result = node.outputs[0];
    const std::string origin = graph_.values[node.inputs[0]].sharding_origin;
    const ValueId stored = rewriter_.mapped(node.inputs[0]);
    const Sharding layout = *to().values[stored].sharding;
    const NodeId id = rewriter_.move_and_keep_values(node, {stored});
    to().values[to().nodes[id].outputs[0]].sharding = layout;
    const std::string path = to().nodes[id].path;
    rewriter_.map(result, reshard(rewriter_.mapped(result), desired(result),
                                  {path, to().nodes[id].phase}, origin));
    return id;
  }

  NodeId partition_node(Node& node) {
    const ShardingRule& rule = signatures_.rule(graph_, node);
    const FactorAxes axes = assign_factors(graph_, node, rule, is_weight_, mesh_);
    const AxisMask kept = pending_to_keep(node, axes);

    const Reader reader{node.path, node.phase};
    ValueList inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Sharding target{unproject(rule.operands[i], axes, rule, mesh_), 0, Combine::kSum};
      target.partial = actual(node.inputs[i]).partial & kept;
      inputs.push_back(reshard(rewriter_.mapped(node.inputs[i]), std::move(target), reader,
                               graph_.values[node.inputs[i]].sharding_origin));
    }
    const ValueList results = node.outputs;
    const NodeId id = rewriter_.move_and_keep_values(node, std::move(inputs));
    for (size_t r = 0; r < results.size(); ++r) {
      to().values[to().nodes[id].outputs[r]].sharding = result_sharding(rule, axes, r, kept);
    }
    for (const ValueId result : results) {
      settle_result(id, result);
    }
    return id;
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

  // Pending axes of the operands that may stay pending through this node: it is elementwise or
  // gives the same elements another order, is linear in them, and does not use them itself.
  AxisMask pending_to_keep(const Node& node, const FactorAxes& axes) {
    const bool keeps_elements =
        node.op->elementwise || node.op->name == "reshape" || node.op->name == "transpose";
    if (!keeps_elements || !node.op->linearity) {
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
  // on. `id`: the new node.
  void settle_result(NodeId id, ValueId old_value) {
    const Sharding& now = actual(old_value);
    const Sharding& wanted = desired(old_value);
    const bool must_settle = now.partial != 0 && (uses_[old_value] > 1 || is_output_[old_value] ||
                                                  to().nodes[id].op->name == "pin");
    if (must_settle || (now.partial == 0 && now != wanted)) {
      const std::string path = to().nodes[id].path;
      const Phase phase = to().nodes[id].phase;
      rewriter_.map(old_value, reshard(rewriter_.mapped(old_value), wanted, {path, phase},
                                       graph_.values[old_value].sharding_origin));
    }
  }

  // What the host reads is settled; what a variable takes has its storage layout.
  void settle_ends() {
    for (const Output& output : graph_.outputs) {
      const Sharding target = actual(output.value).settled();
      settle_end(output.value, target, output.name);
    }
    for (const Update& update : graph_.updates) {
      const Variable& variable = to().variables[update.variable];
      settle_end(update.value, variable.layout.storage, variable.path);
    }
  }

  void settle_end(ValueId old_value, const Sharding& target, const std::string& cause) {
    const NodeId old_node = graph_.values[old_value].producer;
    const Node& node =
        moved_to_[old_node] == kNone ? graph_.nodes[old_node] : to().nodes[moved_to_[old_node]];
    const std::string path = node.path;
    rewriter_.map(old_value,
                  reshard(rewriter_.mapped(old_value), target, {path, node.phase}, cause));
  }

  // The node that a reshard serves; it lends its path and phase.
  struct Reader {
    std::string_view path;
    Phase phase;
  };

  // `value` (of the new graph) under `target`, through the planner's moves; shared by all readers.
  ValueId reshard(ValueId value, Sharding target, Reader reader, const std::string& origin) {
    const Sharding& source = *to().values[value].sharding;
    target.combine = target.partial != 0 ? source.combine : Combine::kSum;
    if (source == target) {
      return value;
    }
    const uint64_t hash = hash_mix(static_cast<uint64_t>(value), target.partial);
    const int known = shared_index_.find(hash, [&](int id) {
      return shared_[static_cast<size_t>(id)].value == value &&
             shared_[static_cast<size_t>(id)].target == target;
    });
    if (known != HashIndex::kAbsent) {
      return shared_[static_cast<size_t>(known)].result;
    }
    const Shape shape = to().values[value].shape;
    const DType dtype = to().values[value].dtype;
    ValueId now = value;
    for (const ReshardMove& move : plan_reshard(source, target, shape, dtype, mesh_)) {
      now = append_move(move, now, reader, origin);
    }
    shared_index_.add(hash, static_cast<int>(shared_.size()));
    shared_.push_back({value, std::move(target), now});
    return now;
  }

  std::string unique_path(std::string path) {
    const int uses = path_uses_[path]++;
    return uses == 0 ? path : fmt::format("{}_{}", path, uses);
  }

  ValueId append_move(const ReshardMove& move, ValueId value, Reader reader,
                      const std::string& origin) {
    const std::string_view name =
        move.kind == MoveKind::kSlice ? "shard_slice" : move_name(move.kind);
    const Value& source = to().values[value];
    // A permute names the axes that its dimension has afterwards.
    const AxisList& axes = move.kind == MoveKind::kPermute ? move.result.dims[move.dim] : move.axes;
    Node node;
    node.op = &find_op(name);
    node.inputs = {value};
    node.attrs = {{"axes", std::vector<int64_t>(axes.begin(), axes.end())},
                  {"cause", origin.empty() ? to().nodes[source.producer].path : origin},
                  {"combine", std::string(combine_name(source.sharding->combine))},
                  {"dim", int64_t{move.dim}},
                  {"to_dim", int64_t{move.to_dim}}};
    node.path = unique_path(fmt::format("{}/{}", reader.path, name));
    node.phase = reader.phase;
    const ValueId result = rewriter_.append(std::move(node), {source.shape, source.dtype});
    to().values[result].sharding = move.result;
    to().values[result].sharding_origin = origin;
    return result;
  }

  // What was resharded, so that readers share it.
  struct Shared {
    ValueId value;
    Sharding target;
    ValueId result;
  };

  Graph& graph_;
  const DeviceMesh& mesh_;
  Rewriter rewriter_;
  Signatures signatures_;
  std::vector<int> uses_;
  std::vector<bool> is_output_;
  std::vector<bool> is_weight_;    // uses of variables
  std::vector<bool> casts_first_;  // uses of variables that only a cast to a smaller type reads
  std::vector<NodeId> moved_to_;   // nodes of the new graph, beside the old ones
  std::vector<Shared> shared_;
  HashIndex shared_index_;
  std::unordered_map<std::string, int> path_uses_;
};

}  // namespace

Graph partition(Graph graph, const DeviceMesh& mesh) {
  return Partitioner(graph, mesh).run();
}

}  // namespace meshtrain
