#include "passes/propagate.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "ir/name_list.h"
#include "ir/op.h"
#include "ir/signatures.h"
#include "passes/factors.h"

namespace meshtrain {
namespace {

// The ops that a sweep may propagate through, in the order of Shardy's op stages.
enum class Sweep { kElementwise, kPass, kBackwardBroadcast, kAll };
constexpr Sweep kSweeps[] = {Sweep::kElementwise, Sweep::kPass, Sweep::kBackwardBroadcast,
                             Sweep::kAll};

// The propagation state of a group of values with one sharding (a value and its cotangents).
struct State {
  DimAxes dims;
  bool closed = false;
  bool is_weight = false;  // a use of a variable, or its cotangent
  bool is_split = false;   // some dimension has axes
  DimAxes origins;         // beside dims: where each axis came from, an index of names_
  int seed = kNone;        // likewise, of the seed that closed it
};

// Why a seed is split: `name` over `axes`, `rest` over all others.
struct SeedOrigin {
  std::string name;
  AxisMask axes = ~AxisMask{0};
  std::string rest = {};
};

// The factors that a sweep may extend at a node, one bit each, and a bit for extending results.
using Freedom = uint64_t;
constexpr Freedom kResults = Freedom{1} << 63;
constexpr size_t kMaxFactors = 63;  // nodes with more are looked at again in every sweep

// The common properties of nodes with one signature.
struct NodeKind {
  const ShardingRule* rule;
  std::array<Freedom, std::size(kSweeps)> freedom;  // of each sweep
};

class Propagator {
 public:
  Propagator(Graph& graph, const DeviceMesh& mesh)
      : graph_(graph),
        mesh_(mesh),
        root_(graph.values.size()),
        states_(graph.values.size()),
        kind_of_(graph.nodes.size(), kNone),
        done_(graph.nodes.size(), 0),
        has_news_(graph.nodes.size(), false) {
    for (ValueId v = 0; v < static_cast<ValueId>(graph.values.size()); ++v) {
      const ValueId forward = graph.values[v].cotangent_of;
      root_[v] = forward == kNone ? v : root_[forward];
      states_[v].dims.resize(graph.values[v].shape.size());
      states_[v].origins.resize(graph.values[v].shape.size());
    }
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (flows(node)) {
        const Signature& signature = signatures_.with_rule(graph, node);
        kind_of_[n] = signature.number;
        if (signature.number == static_cast<int>(kinds_.size())) {
          kinds_.push_back({&signature.rule, {}});
          for (const Sweep sweep : kSweeps) {
            kinds_.back().freedom[static_cast<size_t>(sweep)] =
                freedom(node, signature.rule, sweep);
          }
        }
      }
      if (node.op->kind == OpKind::kVarUse) {
        state(node.outputs[0]).is_weight = true;
      }
    }
    find_readers();
  }

  State& state(ValueId value) { return states_[root_[value]]; }

  // Nothing is added to the axes of a seed.
  void seed(ValueId value, DimAxes dims, SeedOrigin origin) {
    State& s = state(value);
    s.closed = true;
    s.seed = static_cast<int>(names_.size());
    s.is_split = false;
    s.origins = dims;
    for (AxisList& axes : s.origins) {
      for (int& axis : axes) {
        axis = (origin.axes >> axis & 1) != 0 ? s.seed : s.seed + 1;
        s.is_split = true;
      }
    }
    names_.push_back(std::move(origin.name));
    names_.push_back(std::move(origin.rest));
    s.dims = std::move(dims);
    tell(value);
  }

  // A node is looked at again when a tensor of it has changed or the sweep has freedom that it had
  // not when the node was last looked at: every sweep's freedom includes that of the one before,
  // and what one found nothing to do with stays so.
  void run() {
    for (const Sweep sweep : kSweeps) {
      for (size_t n = 0; n < graph_.nodes.size(); ++n) {
        has_news_[n] =
            has_news_[n] != 0 || (kind_of_[n] != kNone && (freedom(n, sweep) & ~done_[n]) != 0);
      }
      bool changed = true;
      while (changed) {
        changed = false;
        for (size_t n = 0; n < graph_.nodes.size(); ++n) {
          changed = (has_news_[n] != 0 && step(n, sweep)) || changed;
        }
        for (size_t n = graph_.nodes.size(); n-- > 0;) {
          changed = (has_news_[n] != 0 && step(n, sweep)) || changed;
        }
      }
    }
  }

  void store() {
    for (ValueId v = 0; v < static_cast<ValueId>(graph_.values.size()); ++v) {
      const State& s = state(v);
      graph_.values[v].sharding = Sharding{s.dims, 0, Combine::kSum};
      graph_.values[v].sharding_origin = origin_text(s);
    }
  }

 private:
  std::string origin_text(const State& s) const {
    std::string out;
    for (const AxisList& origins : s.origins) {
      for (const int origin : origins) {
        add_name(out, names_[origin]);
      }
    }
    return s.is_split || s.seed == kNone ? out : names_[s.seed];
  }

  // A reshard is where two layouts meet; sources have no operands to flow to.
  static bool flows(const Node& node) {
    return !node.op->is_layout_boundary && !node.inputs.empty();
  }

  // The nodes that `state` of a value matters to, in one array: those of root v are
  // readers_[first_reader_[v]] .. readers_[first_reader_[v + 1]].
  void find_readers() {
    first_reader_.assign(graph_.values.size() + 1, 0);
    const auto each = [&](auto visit) {
      for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
        if (kind_of_[n] != kNone) {
          for (const ValueId v : graph_.nodes[n].inputs) {
            visit(root_[v], n);
          }
          for (const ValueId v : graph_.nodes[n].outputs) {
            visit(root_[v], n);
          }
        }
      }
    };
    each([&](ValueId root, NodeId) { ++first_reader_[root + 1]; });
    std::partial_sum(first_reader_.begin(), first_reader_.end(), first_reader_.begin());
    readers_.resize(static_cast<size_t>(first_reader_.back()));
    std::vector<int> next(first_reader_.begin(), first_reader_.end() - 1);
    each([&](ValueId root, NodeId n) { readers_[next[root]++] = n; });
  }

  void tell(ValueId value) {
    const ValueId root = root_[value];
    for (int i = first_reader_[root]; i < first_reader_[root + 1]; ++i) {
      has_news_[readers_[i]] = true;
    }
  }

  static bool allowed(const Node& node, const Factor& factor, Sweep sweep) {
    if (factor.kind == FactorKind::kGather) {
      return false;
    }
    switch (sweep) {
      case Sweep::kElementwise:
        return node.op->elementwise || node.op->is_view;
      case Sweep::kPass:
        return factor.kind == FactorKind::kPass;
      default:
        return true;
    }
  }

  static Freedom freedom(const Node& node, const ShardingRule& rule, Sweep sweep) {
    Freedom out = 0;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      const Freedom bit = Freedom{1} << std::min(f, kMaxFactors - 1);
      out |= allowed(node, rule.factors[f], sweep) ? bit : 0;
    }
    // A broadcast may invent a sharding of its result only when nothing else is left to say.
    const bool backward_only = node.op->kind == OpKind::kBroadcast && sweep != Sweep::kAll;
    return backward_only || out == 0 ? out : out | kResults;
  }
  Freedom freedom(size_t n, Sweep sweep) const {
    return kinds_[kind_of_[n]].freedom[static_cast<size_t>(sweep)];
  }

  // The tensors of a node: operands, then results.
  struct Tensor {
    ValueId value;
    const TensorFactors* factors;
    Projection projection;
    bool is_weight;
  };
  using Tensors = SmallVector<Tensor, 4>;

  bool step(size_t n, Sweep sweep) {
    const Node& node = graph_.nodes[n];
    const ShardingRule& rule = *kinds_[kind_of_[n]].rule;
    const Freedom free = freedom(n, sweep);
    has_news_[n] = false;
    done_[n] = rule.factors.size() < kMaxFactors ? free : 0;
    if (free == 0 || !any_split(node)) {
      return false;
    }
    Tensors tensors = project_all(node, rule);
    const AxisOwners owners = axis_owners(rule, tensors);
    bool changed = false;
    for (int f = 0; f < static_cast<int>(rule.factors.size()); ++f) {
      if (!allowed(node, rule.factors[f], sweep)) {
        continue;
      }
      ValueId from = kNone;
      const AxisList wanted = agreed(f, tensors, from);
      const size_t count = (free & kResults) != 0 ? tensors.size() : node.inputs.size();
      for (size_t t = 0; t < count && !wanted.empty(); ++t) {
        changed = extend(tensors[t], f, wanted, rule, owners, from) || changed;
      }
    }
    return changed;
  }

  bool any_split(const Node& node) {
    const auto is_split = [&](ValueId value) { return state(value).is_split; };
    return std::any_of(node.inputs.begin(), node.inputs.end(), is_split) ||
           std::any_of(node.outputs.begin(), node.outputs.end(), is_split);
  }

  Tensors project_all(const Node& node, const ShardingRule& rule) {
    Tensors tensors;
    const auto add = [&](ValueId value, const TensorFactors& factors) {
      const State& s = state(value);
      tensors.push_back({value, &factors, project(factors, s.dims, rule, mesh_), s.is_weight});
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
  using AxisOwners = std::array<int, kMaxAxes>;
  static AxisOwners axis_owners(const ShardingRule& rule, const Tensors& tensors) {
    AxisOwners owners;
    owners.fill(kNone);
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

  // The longest list for factor `f` that no tensor contradicts, and the value that has it; on a
  // conflict their common prefix.
  static AxisList agreed(int f, const Tensors& tensors, ValueId& from) {
    AxisList best;
    for (const Tensor& tensor : tensors) {
      const AxisList& list = tensor.projection.axes[f];
      const size_t common =
          std::mismatch(list.begin(), list.end(), best.begin(), best.end()).first - list.begin();
      if (common == best.size()) {
        if (list.size() > best.size()) {
          best = list;
          from = tensor.value;
        }
      } else if (common < list.size()) {  // neither is a prefix of the other
        best.resize(common);
      }
    }
    return best;
  }

  // Appends what is missing of `wanted` (as `from` has it) to the tensor's dimension of factor `f`,
  // axis by axis, as long as it is legal there.
  bool extend(Tensor& tensor, int f, const AxisList& wanted, const ShardingRule& rule,
              const AxisOwners& owners, ValueId from) {
    State& s = state(tensor.value);
    AxisList& have = tensor.projection.axes[f];
    if (s.closed || have.size() >= wanted.size() ||
        !std::equal(have.begin(), have.end(), wanted.begin())) {
      return false;
    }
    const int dim = dim_of_factor(*tensor.factors, f);
    if (dim == kNone || !is_open_end(tensor, dim, f, rule)) {
      return false;
    }
    bool changed = false;
    for (size_t i = have.size(); i < wanted.size(); ++i) {
      const int axis = wanted[i];
      const bool is_free = std::none_of(s.dims.begin(), s.dims.end(), [&](const AxisList& axes) {
        return std::find(axes.begin(), axes.end(), axis) != axes.end();
      });
      const int64_t left = rule.factors[f].size / mesh_.size_of(have);
      if (!is_free || owners[axis] != f || left % mesh_.axis_size(axis) != 0) {
        break;
      }
      s.origins[dim].push_back(origin_of(state(from), axis));
      s.dims[dim].push_back(axis);
      have.push_back(axis);
      changed = true;
    }
    if (changed) {
      s.is_split = true;
      tell(tensor.value);
    }
    return changed;
  }

  // Where `axis`, which splits some dimension, came from.
  static int origin_of(const State& s, int axis) {
    for (size_t d = 0; d < s.dims.size(); ++d) {
      for (size_t i = 0; i < s.dims[d].size(); ++i) {
        if (s.dims[d][i] == axis) {
          return s.origins[d][i];
        }
      }
    }
    throw InternalError(fmt::format("axis {} splits nothing", axis));
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
  std::vector<std::string> names_;  // of origins
  Signatures signatures_;
  std::vector<int> kind_of_;  // of each node, in kinds_; kNone: nothing flows there
  std::vector<NodeKind> kinds_;
  std::vector<Freedom> done_;      // of the sweep that last looked at a node
  std::vector<uint8_t> has_news_;  // a node must be looked at
  std::vector<int> first_reader_;
  std::vector<NodeId> readers_;
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

// Returns the origin of the layouts of a weight, or of a slot that follows it.
SeedOrigin variable_origin(const Graph& graph, const Variable& variable) {
  const Variable& weight = variable.follows == kNone ? variable : graph.variables[variable.follows];
  return {weight.path, weight.layout.compute.dim_axes(), stored_origin(weight.path)};
}

void seed_variables(const Graph& graph, Propagator& propagator, bool compute_layouts) {
  for (const Node& node : graph.nodes) {
    if (node.op->kind == OpKind::kParameter) {
      const Variable& variable = graph.variables[node.attr_int("variable")];
      propagator.seed(node.outputs[0], variable.layout.storage.dims,
                      variable_origin(graph, variable));
    } else if (node.op->kind == OpKind::kReshard) {
      propagator.seed(node.outputs[0], reshard_target(graph, node).dims,
                      variable_origin(graph, graph.variables[node.attr_int("variable")]));
    } else if (node.op->kind == OpKind::kVarUse) {
      const Node& parameter = graph.producer(node.inputs[0]);
      const Variable& variable = graph.variables[parameter.attr_int("variable")];
      DimAxes dims(variable.shape.size());
      propagator.seed(node.outputs[0], compute_layouts ? variable.layout.compute.dims : dims,
                      {variable.path});
    }
  }
}

// Closes the results of pins (and of their cotangents' pins) at the axes of `allowed`.
void seed_pins(const Graph& graph, Propagator& propagator, const PropagateOptions& options,
               AxisMask allowed) {
  for (const Node& node : graph.nodes) {
    if (node.op->kind != OpKind::kPin) {
      continue;
    }
    const std::string& key = node.attr_string("key");
    const Sharding& sharding = options.pins.at(key);
    const AxisMask batch =
        sharding.dims.empty() ? 0 : mask_of(sharding.dims[0]) & mask_of(options.batch_axes);
    propagator.seed(node.outputs[0], only_axes(sharding.dims, allowed),
                    {key, ~batch, kBatchOrigin});
  }
}

}  // namespace

std::string stored_origin(const std::string& path) {
  return "stored " + path;
}

void propagate(Graph& graph, const DeviceMesh& mesh, const PropagateOptions& options) {
  Propagator propagator(graph, mesh);
  for (const Node& node : graph.nodes) {
    if (node.op->kind == OpKind::kInput) {
      DimAxes dims(graph.shape(node.outputs[0]).size());
      if (node.attr_int("batch") != 0 && !dims.empty()) {
        std::copy_if(options.batch_axes.begin(), options.batch_axes.end(),
                     std::back_inserter(dims[0]),
                     [&](int axis) { return mesh.axis_size(axis) > 1; });
      }
      propagator.seed(node.outputs[0], std::move(dims), {kBatchOrigin});
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
