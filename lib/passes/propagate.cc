#include "passes/propagate.h"

#include <algorithm>

#include "ir/op.h"
#include "passes/factors.h"

namespace meshtrain {
namespace {

// What a sweep may propagate through, in the order of Shardy's op stages.
enum class Sweep { kElementwise, kPass, kBackwardBroadcast, kAll };
constexpr Sweep kSweeps[] = {Sweep::kElementwise, Sweep::kPass, Sweep::kBackwardBroadcast,
                             Sweep::kAll};

// The propagation state of a group of values that lie alike (a value and its cotangents).
struct State {
  DimAxes dims;
  bool closed = false;
  bool is_weight = false;  // a use of a variable, or its cotangent
  int64_t changes = 0;
  std::string origin;
};

class Propagator {
 public:
  Propagator(Graph& graph, const DeviceMesh& mesh) : graph_(graph), mesh_(mesh) {
    root_.resize(graph.values.size());
    states_.resize(graph.values.size());
    for (ValueId v = 0; v < static_cast<ValueId>(graph.values.size()); ++v) {
      const ValueId forward = graph.values[v].cotangent_of;
      root_[v] = forward == kNone ? v : root_[forward];
      states_[v].dims.resize(graph.values[v].shape.size());
    }
    for (const Node& node : graph.nodes) {
      rules_.push_back(flows(node) ? sharding_rule(graph, node) : ShardingRule{});
      if (node.op->name == "var_use") {
        state(node.outputs[0]).is_weight = true;
      }
    }
  }

  State& state(ValueId value) { return states_[root_[value]]; }

  void seed(ValueId value, DimAxes dims, std::string origin, bool closed) {
    State& s = state(value);
    s.dims = std::move(dims);
    s.origin = std::move(origin);
    s.closed = closed;
    ++s.changes;
  }

  void run() {
    for (const Sweep sweep : kSweeps) {
      seen_.assign(graph_.nodes.size(), -1);
      bool changed = true;
      while (changed) {
        changed = false;
        for (size_t n = 0; n < graph_.nodes.size(); ++n) {
          changed = step(n, sweep) || changed;
        }
        for (size_t n = graph_.nodes.size(); n-- > 0;) {
          changed = step(n, sweep) || changed;
        }
      }
    }
  }

  void store() {
    for (ValueId v = 0; v < static_cast<ValueId>(graph_.values.size()); ++v) {
      const State& s = state(v);
      graph_.values[v].sharding = Sharding{s.dims, 0, Combine::kSum};
      graph_.values[v].sharding_origin = s.origin;
    }
  }

 private:
  // A reshard is where two layouts meet; sources have no operands to flow to.
  static bool flows(const Node& node) {
    return node.op->name != "reshard" && node.op->name != "var_use" && !node.inputs.empty();
  }

  static bool allowed(const Node& node, const Factor& factor, Sweep sweep) {
    if (factor.kind == FactorKind::kGather) {
      return false;
    }
    switch (sweep) {
      case Sweep::kElementwise:
        return node.op->elementwise || node.op->name == "transpose" || node.op->name == "reshape";
      case Sweep::kPass:
        return factor.kind == FactorKind::kPass;
      default:
        return true;
    }
  }

  // The tensors of a node: operands, then results.
  struct Tensor {
    ValueId value;
    const TensorFactors* factors;
    Projection projection;
    bool is_weight;
  };

  bool step(size_t n, Sweep sweep) {
    const Node& node = graph_.nodes[n];
    if (!flows(node) || !has_news(n)) {
      return false;
    }
    const ShardingRule& rule = rules_[n];
    std::vector<Tensor> tensors = project_all(node, rule);
    const std::vector<int> owners = axis_owners(rule, tensors);
    bool changed = false;
    for (int f = 0; f < static_cast<int>(rule.factors.size()); ++f) {
      if (!allowed(node, rule.factors[f], sweep)) {
        continue;
      }
      std::string origin;
      const AxisList wanted = agreed(f, tensors, origin);
      // A broadcast may invent a sharding of its result only when nothing else is left to say.
      const bool backward_only = node.op->name == "broadcast" && sweep != Sweep::kAll;
      for (size_t t = 0; t < (backward_only ? node.inputs.size() : tensors.size()); ++t) {
        changed = extend(tensors[t], f, wanted, rule, owners, origin) || changed;
      }
    }
    return changed;
  }

  // Whether any tensor of the node is split and has changed since this sweep last saw the node.
  bool has_news(size_t n) {
    int64_t changes = 0;
    bool is_split = false;
    const auto look = [&](ValueId value) {
      const State& s = state(value);
      changes += s.changes;
      is_split = is_split || std::any_of(s.dims.begin(), s.dims.end(),
                                         [](const AxisList& axes) { return !axes.empty(); });
    };
    std::for_each(graph_.nodes[n].inputs.begin(), graph_.nodes[n].inputs.end(), look);
    std::for_each(graph_.nodes[n].outputs.begin(), graph_.nodes[n].outputs.end(), look);
    const bool news = is_split && changes != seen_[n];
    seen_[n] = changes;
    return news;
  }

  std::vector<Tensor> project_all(const Node& node, const ShardingRule& rule) {
    std::vector<Tensor> tensors;
    tensors.reserve(node.inputs.size() + node.outputs.size());
    const auto add = [&](ValueId value, const TensorFactors& factors) {
      tensors.push_back({value, &factors, project(factors, state(value).dims, rule, mesh_),
                         state(value).is_weight});
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      add(node.inputs[i], rule.operands[i]);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      add(node.outputs[i], rule.results[i]);
    }
    return tensors;
  }

  // Which factor each axis belongs to in this node, when tensors use it for different ones: a
  // weight's use wins (the user asked for that split), then the first tensor's.
  std::vector<int> axis_owners(const ShardingRule& rule, const std::vector<Tensor>& tensors) const {
    std::vector<int> owners(mesh_.num_axes(), kNone);
    for (const bool weights : {true, false}) {
      for (const Tensor& tensor : tensors) {
        if (tensor.is_weight != weights) {
          continue;
        }
        for (size_t f = 0; f < rule.factors.size(); ++f) {
          for (const int axis : tensor.projection.axes[f]) {
            owners[axis] = owners[axis] == kNone ? static_cast<int>(f) : owners[axis];
          }
        }
      }
    }
    return owners;
  }

  // The longest list for factor `f` that no tensor contradicts; on a conflict their common prefix.
  AxisList agreed(int f, const std::vector<Tensor>& tensors, std::string& origin) {
    AxisList best;
    for (const Tensor& tensor : tensors) {
      const AxisList& list = tensor.projection.axes[f];
      const size_t common =
          std::mismatch(list.begin(), list.end(), best.begin(), best.end()).first - list.begin();
      if (common == best.size()) {
        if (list.size() > best.size()) {
          best = list;
          origin = state(tensor.value).origin;
        }
      } else if (common < list.size()) {  // neither is a prefix of the other
        best.resize(common);
      }
    }
    return best;
  }

  // Appends what is missing of `wanted` to the tensor's dimension of factor `f`, axis by axis, as
  // long as it is legal there.
  bool extend(Tensor& tensor, int f, const AxisList& wanted, const ShardingRule& rule,
              const std::vector<int>& owners, const std::string& origin) {
    State& s = state(tensor.value);
    AxisList& have = tensor.projection.axes[f];
    const int dim = dim_of_factor(*tensor.factors, f);
    if (s.closed || dim == kNone || have.size() >= wanted.size() ||
        !std::equal(have.begin(), have.end(), wanted.begin()) ||
        !is_open_end(tensor, dim, f, rule)) {
      return false;
    }
    bool changed = false;
    for (size_t i = have.size(); i < wanted.size(); ++i) {
      const int axis = wanted[i];
      const Sharding now{s.dims, 0, Combine::kSum};
      const bool is_free = (now.used_axes() >> axis & 1) == 0;
      const int64_t left = rule.factors[f].size / mesh_.size_of(have);
      if (!is_free || owners[axis] != f || left % mesh_.axis_size(axis) != 0) {
        break;
      }
      s.dims[dim].push_back(axis);
      have.push_back(axis);
      s.origin = s.origin.empty() ? origin : s.origin;
      ++s.changes;
      changed = true;
    }
    return changed;
  }

  // Whether an axis appended to the dimension would fall to factor `f`: every factor before it is
  // full, none after it is split, and nothing in the dimension escaped the projection.
  bool is_open_end(const Tensor& tensor, int dim, int f, const ShardingRule& rule) const {
    if (!tensor.projection.exact) {
      return false;
    }
    bool before = true;
    for (const int factor : (*tensor.factors)[dim]) {
      if (factor == f) {
        before = false;
      } else if (before &&
                 mesh_.size_of(tensor.projection.axes[factor]) != rule.factors[factor].size) {
        return false;
      } else if (!before && !tensor.projection.axes[factor].empty()) {
        return false;
      }
    }
    return true;
  }

  Graph& graph_;
  const DeviceMesh& mesh_;
  std::vector<ValueId> root_;  // the forward value whose state a value shares
  std::vector<State> states_;
  std::vector<ShardingRule> rules_;  // beside nodes
  std::vector<int64_t> seen_;        // changes of the node's tensors when this sweep saw it
};

DimAxes only_axes(const DimAxes& dims, AxisMask axes) {
  DimAxes out(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    std::copy_if(dims[d].begin(), dims[d].end(), std::back_inserter(out[d]),
                 [&](int axis) { return (axes >> axis & 1) != 0; });
  }
  return out;
}

const Sharding& reshard_target(const Graph& graph, const Node& node) {
  const VariableLayout& layout = graph.variables[node.attr_int("variable")].layout;
  const std::string& which = node.attr_string("layout");
  return which == "grad" ? layout.grad : which == "state" ? layout.state : layout.storage;
}

void seed_variables(const Graph& graph, Propagator& propagator, bool compute_layouts) {
  for (const Node& node : graph.nodes) {
    if (node.op->name == "parameter") {
      const Variable& variable = graph.variables[node.attr_int("variable")];
      propagator.seed(node.outputs[0], variable.layout.storage.dims, variable.path, true);
    } else if (node.op->name == "reshard") {
      propagator.seed(node.outputs[0], reshard_target(graph, node).dims,
                      graph.variables[node.attr_int("variable")].path, true);
    } else if (node.op->name == "var_use") {
      const Node& parameter = graph.producer(node.inputs[0]);
      const Variable& variable = graph.variables[parameter.attr_int("variable")];
      DimAxes dims(variable.shape.size());
      propagator.seed(node.outputs[0], compute_layouts ? variable.layout.compute.dims : dims,
                      variable.path, true);
    }
  }
}

// Closes the results of pins (and of their cotangents' pins) at the axes of `allowed`.
void seed_pins(const Graph& graph, Propagator& propagator, const PropagateOptions& options,
               AxisMask allowed) {
  for (const Node& node : graph.nodes) {
    if (node.op->name != "pin") {
      continue;
    }
    const std::string& key = node.attr_string("key");
    const Sharding& sharding = options.pins.at(key);
    propagator.seed(node.outputs[0], only_axes(sharding.dims, allowed), key, true);
  }
}

}  // namespace

void propagate(Graph& graph, const DeviceMesh& mesh, const PropagateOptions& options) {
  Propagator propagator(graph, mesh);
  for (const Node& node : graph.nodes) {
    if (node.op->name == "input") {
      DimAxes dims(graph.shape(node.outputs[0]).size());
      if (node.attr_int("batch") != 0 && !dims.empty()) {
        std::copy_if(options.batch_axes.begin(), options.batch_axes.end(),
                     std::back_inserter(dims[0]),
                     [&](int axis) { return mesh.axis_size(axis) > 1; });
      }
      propagator.seed(node.outputs[0], std::move(dims), "batch", true);
    }
  }
  seed_variables(graph, propagator, false);
  seed_pins(graph, propagator, options, mask_of(options.batch_axes));
  propagator.run();

  seed_variables(graph, propagator, true);
  seed_pins(graph, propagator, options, ~AxisMask{0});
  propagator.run();
  propagator.store();
}

}  // namespace meshtrain
