#include "passes/partition.h"

#include "ir/op.h"
#include "ir/signatures.h"
#include "passes/assign_factors.h"
#include "passes/factors.h"
#include "passes/resharder.h"

namespace meshtrain {
namespace {

class Partitioner {
 public:
  Partitioner(Graph& graph, const DeviceMesh& mesh)
      : graph_(graph),
        mesh_(mesh),
        rewriter_(graph),
        resharder_(rewriter_, mesh),
        uses_(graph.use_counts()),
        is_output_(graph.values.size()),
        is_weight_(graph.values.size()),
        casts_first_(graph.values.size()),
        moved_to_(graph.nodes.size(), kNone),
        pinned_by_(graph.values.size(), kNone),
        stored_because_(to().variables.size()) {
    for (const Output& output : graph.outputs) {
      is_output_[output.value] = true;
    }
    for (const Node& node : graph.nodes) {
      if (narrows(node)) {
        const ValueId input = node.inputs[0];
        casts_first_[input] =
            graph.producer(input).op->kind == OpKind::kVarUse && uses_[input] == 1;
      } else if (node.op->kind == OpKind::kReshard) {
        reshard_before_casts(node);
      } else if (node.op->kind == OpKind::kPin) {
        const int key = resharder_.origins().number(node.attr_string("key"));
        pinned_by_[node.inputs[0]] = pinned_by_[node.outputs[0]] = key;
      }
    }
  }

  Graph run() {
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      Node& node = graph_.nodes[n];
      if (node.inputs.empty()) {
        move_source(n);
      } else if (node.op->is_layout_boundary) {
        is_weight_[node.outputs[0]] = node.op->kind == OpKind::kVarUse;
        if (casts_first_[node.outputs[0]]) {
          rewriter_.map(node.outputs[0], rewriter_.mapped(node.inputs[0]));
        } else {
          forward_reshard(node);
        }
      } else if (node.op->kind == OpKind::kCast && casts_first_[node.inputs[0]]) {
        moved_to_[n] = cast_stored_weight(node);
      } else {
        moved_to_[n] = partition_node(node);
      }
    }
    reshard_ends();
    return rewriter_.finish();
  }

 private:
  Graph& to() { return rewriter_.to(); }
  const Sharding& actual(ValueId old_value) {
    return *to().values[rewriter_.mapped(old_value)].sharding;
  }
  const Sharding& desired(ValueId old_value) const { return *graph_.values[old_value].sharding; }
  Reasons desired_because(ValueId old_value) {
    return resharder_.origins().of(graph_.values[old_value]);
  }

  // A cast to a type of fewer bytes: a partial sum must be reduced before it.
  bool narrows(const Node& node) const {
    return node.op->kind == OpKind::kCast &&
           dtype_size(graph_.dtype(node.outputs[0])) < dtype_size(graph_.dtype(node.inputs[0]));
  }

  // A gradient that is rounded on its way to a layout takes that layout where it is reduced.
  void reshard_before_casts(const Node& reshard) {
    SmallVector<ValueId, 4> casts;
    size_t reduced = 0;  // of them, those from the reduced value on
    ValueId value = reshard.inputs[0];
    while (uses_[value] == 1 && graph_.producer(value).op->kind == OpKind::kCast) {
      casts.push_back(value);
      reduced = narrows(graph_.producer(value)) ? casts.size() : reduced;
      value = graph_.producer(value).inputs[0];
    }
    const Value& wanted = graph_.values[reshard.outputs[0]];
    for (size_t i = 0; i < reduced; ++i) {
      graph_.values[casts[i]].sharding = wanted.sharding;
      graph_.values[casts[i]].sharding_origin = wanted.sharding_origin;
    }
  }

  // Sources are born as propagated.
  void move_source(NodeId n) {
    const ValueList results = graph_.nodes[n].outputs;
    moved_to_[n] = rewriter_.move_and_keep_values(graph_.nodes[n], {});
    for (const ValueId result : results) {
      resharder_.set_sharding(rewriter_.mapped(result), desired(result), desired_because(result));
    }
    const Node& node = to().nodes[moved_to_[n]];
    if (node.op->kind == OpKind::kParameter) {
      stored_because_[node.attr_int("variable")] = desired_because(results[0]);
    }
  }

  // A layout change the graph asks for: the value under its new sharding replaces the node.
  void forward_reshard(const Node& node) {
    const ValueId source = rewriter_.mapped(node.inputs[0]);
    const Node& names_variable = node.op->kind == OpKind::kReshard ? node : to().producer(source);
    const std::string& variable = to().variables[names_variable.attr_int("variable")].path;
    const bool again = node.op->kind == OpKind::kVarUse && node.phase == Phase::kBackward;
    reshard_result(node.outputs[0], source, {node.path, node.phase, variable, !again});
  }

  // A weight that is used in fewer bytes than it is stored in is cast first and moved then.
  NodeId cast_stored_weight(Node& node) {
    const ValueId result = node.outputs[0];
    const ValueId stored = rewriter_.mapped(node.inputs[0]);
    const std::string& variable = to().variables[to().producer(stored).attr_int("variable")].path;
    const NodeId id = rewriter_.move_and_keep_values(node, {stored});
    resharder_.set_sharding(rewriter_.mapped(result), *to().values[stored].sharding,
                            resharder_.why(stored));
    const std::string path = to().nodes[id].path;
    reshard_result(result, rewriter_.mapped(result), {path, to().nodes[id].phase, variable});
    return id;
  }

  // Maps a result of the old graph to `value`, resharded to the sharding of that result.
  void reshard_result(ValueId old_value, ValueId value, Resharder::Reader reader) {
    rewriter_.map(old_value, resharder_.reshard(value, desired(old_value), reader,
                                                desired_because(old_value)));
  }

  NodeId partition_node(Node& node) {
    const ShardingRule& rule = signatures_.rule(graph_, node);
    FactorAxes axes = assign_factors(graph_, node, rule, is_weight_, mesh_);
    const AxisMask kept = partial_to_keep(node, axes);

    SmallVector<Sharding, 4> operands, results;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      operands.push_back({unproject(rule.operands[i], axes, rule, mesh_),
                          actual(node.inputs[i]).partial & kept, Combine::kSum});
    }
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      results.push_back(result_sharding(rule, axes, r, kept));
    }
    Reasons reasons = split_because(node, operands, results);
    ValueList inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = rewriter_.mapped(node.inputs[i]);
      inputs.push_back(
          resharder_.reshard(input, std::move(operands[i]), {node.path, node.phase, {}}, reasons));
      add_reasons(reasons, resharder_.why(inputs.back()), kept);
    }
    const ValueList outputs = node.outputs;
    const NodeId id = rewriter_.move_and_keep_values(node, std::move(inputs));
    for (size_t r = 0; r < outputs.size(); ++r) {
      resharder_.set_sharding(rewriter_.mapped(outputs[r]), std::move(results[r]), reasons);
    }
    for (const ValueId result : outputs) {
      resolve_result(id, result);
    }
    return id;
  }

  // Why a node computes with sharded tensors: because of its first sharded operand, or of all
  // operands for the axes of a sum; else because of a sharded result.
  Reasons split_because(const Node& node, const SmallVector<Sharding, 4>& operands,
                        const SmallVector<Sharding, 4>& results) {
    Reasons out;
    AxisMask found = 0, summed = 0;
    for (const Sharding& result : results) {
      summed |= result.partial;
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const AxisMask axes = common_axes(operands[i].dims, actual(node.inputs[i]).dims);
      add_reasons(out, resharder_.why(rewriter_.mapped(node.inputs[i])), axes & (~found | summed));
      found |= axes;
    }
    const auto take_wanted = [&](ValueId value, const Sharding& sharding) {
      const AxisMask axes = common_axes(sharding.dims, desired(value).dims) & ~found;
      if (axes != 0) {
        add_reasons(out, desired_because(value), axes);
        found |= axes;
      }
    };
    for (size_t i = 0; i < operands.size(); ++i) {
      take_wanted(node.inputs[i], operands[i]);
    }
    for (size_t r = 0; r < results.size(); ++r) {
      take_wanted(node.outputs[r], results[r]);
    }
    return out;
  }

  static AxisMask common_axes(const DimAxes& a, const DimAxes& b) {
    AxisMask out = 0;
    for (size_t d = 0; d < a.size(); ++d) {
      out |= mask_of(a[d]) & mask_of(b[d]);
    }
    return out;
  }

  Sharding result_sharding(const ShardingRule& rule, const FactorAxes& axes, size_t r,
                           AxisMask kept) const {
    Sharding out{unproject(rule.results[r], axes, rule, mesh_), kept, Combine::kSum};
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].kind == FactorKind::kReduce && !axes[f].empty() &&
          !has_factor(rule.results[r], static_cast<int>(f))) {
        out.partial |= mask_of(axes[f]);
        out.combine = rule.factors[f].combine;
      }
    }
    return out;
  }

  // Partial axes of the operands that may stay partial through this node: it is elementwise or
  // gives the same elements another order, is linear in them, and does not use them itself. A sum
  // of several partial values gives them up in `axes`: one collective of the sum takes the place of
  // one of each term. Of their axes it keeps those that all terms have; each term is reduced over
  // its others.
  AxisMask partial_to_keep(const Node& node, FactorAxes& axes) {
    const bool keeps_elements = node.op->elementwise || node.op->is_view;
    if (!keeps_elements || !node.op->linearity) {
      return 0;
    }
    AxisMask partial = ~AxisMask{0}, split = 0;
    uint32_t operands = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Sharding& sharding = actual(node.inputs[i]);
      split |= sharding.dim_axes();
      if (sharding.partial == 0) {
        continue;
      }
      if (sharding.combine != Combine::kSum) {
        return 0;
      }
      partial &= sharding.partial;
      operands |= 1u << i;
    }
    AxisMask used = 0;
    for (const AxisList& list : axes) {
      used |= mask_of(list);
    }
    if (partial == 0 || operands == 0) {
      return 0;
    }
    const Linearity linear = linearity(node);
    const bool is_one = (operands & (operands - 1)) == 0;
    const bool is_linear =
        (is_one && (operands & linear.any_one) == operands) || operands == linear.all;
    if (!is_linear || ((used & partial) != 0 && (is_one || (split & partial) != 0))) {
      return 0;
    }
    for (AxisList& list : axes) {
      erase_if(list, [&](int axis) { return (partial >> axis & 1) != 0; });
    }
    return partial;
  }

  // A result that is not partial is resharded to its propagated sharding at once; a partial one
  // with several readers, or one that the host reads, is reduced once; one with a single reader
  // travels on. `id`: the new node.
  void resolve_result(NodeId id, ValueId old_value) {
    const Sharding& now = actual(old_value);
    const Sharding& wanted = desired(old_value);
    const bool must_reduce = now.partial != 0 && (uses_[old_value] > 1 || is_output_[old_value] ||
                                                  to().nodes[id].op->kind == OpKind::kPin);
    if (must_reduce || (now.partial == 0 && now != wanted)) {
      const std::string path = to().nodes[id].path;
      const Phase phase = to().nodes[id].phase;
      Reasons reasons = desired_because(old_value);
      for (const Reason& reason : resharder_.why(rewriter_.mapped(old_value))) {
        const bool is_kept = (wanted.used_axes() >> reason.axis & 1) != 0;
        if (pinned_by_[old_value] != kNone && !is_kept) {  // made whole because of the pin, too
          reasons.push_back({reason.axis, pinned_by_[old_value]});
        }
      }
      rewriter_.map(old_value, resharder_.reshard(rewriter_.mapped(old_value), wanted,
                                                  {path, phase, {}}, reasons));
    }
  }

  // Reshards the ends: outputs are reduced, updates get the storage layout of their variable.
  void reshard_ends() {
    for (const Output& output : graph_.outputs) {
      const Sharding target = actual(output.value).reduced();
      reshard_end(output.value, target, {}, {});
    }
    for (const Update& update : graph_.updates) {
      const Variable& variable = to().variables[update.variable];
      reshard_end(update.value, variable.layout.storage, variable.path,
                  stored_because_[update.variable]);
    }
  }

  void reshard_end(ValueId old_value, const Sharding& target, std::string_view variable,
                   const Reasons& reasons) {
    const NodeId old_node = graph_.values[old_value].producer;
    const Node& node =
        moved_to_[old_node] == kNone ? graph_.nodes[old_node] : to().nodes[moved_to_[old_node]];
    const std::string path = node.path;
    rewriter_.map(old_value, resharder_.reshard(rewriter_.mapped(old_value), target,
                                                {path, node.phase, variable}, reasons));
  }

  Graph& graph_;
  const DeviceMesh& mesh_;
  Rewriter rewriter_;
  Resharder resharder_;
  Signatures signatures_;
  std::vector<int> uses_;
  std::vector<bool> is_output_;
  std::vector<bool> is_weight_;    // uses of variables
  std::vector<bool> casts_first_;  // uses of variables that only a cast to a smaller type reads
  std::vector<NodeId> moved_to_;   // nodes of the new graph, beside the old ones
  std::vector<int> pinned_by_;     // operands and results of pins: the origin of its key
  std::vector<Reasons> stored_because_;  // of each variable, why its storage is split
};

}  // namespace

Graph partition(Graph graph, const DeviceMesh& mesh) {
  return Partitioner(graph, mesh).run();
}

}  // namespace meshtrain
