// Invariants of a partitioned graph: each device may run each node on its shards, and what comes
// out is the shard (or the partial term) that the result's sharding says.
#include <algorithm>

#include "base/error.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/signatures.h"
#include "ir/verify.h"
#include "mesh/reshard.h"

namespace meshtrain {
namespace {

class ShardingVerifier {
 public:
  ShardingVerifier(const Graph& graph, const DeviceMesh& mesh) : graph_(graph), mesh_(mesh) {}

  void run_values() {
    for (const Node& node : graph_.nodes) {
      node_ = &node;
      for (ValueId value : node.outputs) {
        check_value(value);
      }
    }
  }

  void run() {
    const std::vector<Signature*> found = verify_structure(graph_, signatures_);
    for (size_t n = 0; n < found.size(); ++n) {
      verify_node(graph_.nodes[n], found[n]);
    }
  }

 private:
  void verify_node(const Node& node, Signature* signature) {
    node_ = &node;
    for (ValueId value : node.outputs) {
      check_value(value);
    }
    if (node.op->collective) {
      verify_collective();
      return;
    }
    if (node.inputs.empty() && is_reduced(node.outputs)) {
      return;  // a source may have any sharding
    }
    signature = signature == nullptr ? signatures_.find(graph_, node).first : signature;
    rule_ = &signatures_.rule_of(*signature, graph_, node);
    axes_.assign(rule_->factors.size(), {});
    is_known_.assign(rule_->factors.size(), false);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      read_factors(rule_->operands[i], node.inputs[i]);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      read_factors(rule_->results[i], node.outputs[i]);
    }
    verify_factors();
    verify_partial();
  }

  bool is_reduced(const ValueList& values) const {
    return std::all_of(values.begin(), values.end(),
                       [&](ValueId value) { return sharding(value).partial == 0; });
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InternalError(fmt::format("{} ({}): {}", node_->path, node_->op->name,
                                    fmt::format(format, std::forward<Args>(args)...)));
  }

  const Sharding& sharding(ValueId value) const { return *graph_.values[value].sharding; }
  std::string text(ValueId value) const {
    return fmt::format("%{} {}", value, sharding_string(sharding(value), mesh_));
  }

  void check_value(ValueId value) const {
    const Value& v = graph_.values[value];
    if (!v.sharding) {
      fail("%{} has no sharding", value);
    }
    if (const auto problem = sharding_problem(*v.sharding, v.shape, mesh_)) {
      fail("%{}: {}", value, *problem);
    }
  }

  // Gives each factor of a tensor the axes that split it: those of a dimension fill its factors
  // from the major one. Compares with what other tensors of the node say.
  void read_factors(const TensorFactors& tensor, ValueId value) {
    for (size_t dim = 0; dim < tensor.size(); ++dim) {
      const AxisList& axes = sharding(value).dims[dim];
      size_t next = 0;
      for (int factor : tensor[dim]) {
        AxisList own;
        int64_t left = rule_->factors[factor].size;
        while (next < axes.size() && left % mesh_.axis_size(axes[next]) == 0 &&
               mesh_.axis_size(axes[next]) <= left) {
          left /= mesh_.axis_size(axes[next]);
          own.push_back(axes[next++]);
        }
        agree(factor, own, value);
        if (left != 1 && next < axes.size()) {
          fail("{}: the axes of dimension {} do not fit its factors", text(value), dim);
        }
      }
      if (next < axes.size()) {
        fail("{}: dimension {} is split where the op has no factor for it", text(value), dim);
      }
    }
  }

  void agree(int factor, const AxisList& axes, ValueId value) {
    if (is_known_[factor] && axes_[factor] != axes) {
      fail("{} disagrees with the node's other tensors about factor {}", text(value), factor);
    }
    is_known_[factor] = true;
    axes_[factor] = axes;
  }

  void verify_factors() {
    split_ = 0;
    for (size_t f = 0; f < axes_.size(); ++f) {
      if (rule_->factors[f].kind == FactorKind::kGather && !axes_[f].empty()) {
        fail("factor {} must be whole and is split", f);
      }
      for (int axis : axes_[f]) {
        const AxisMask bit = AxisMask{1} << axis;
        if ((split_ & bit) != 0) {
          fail("axis {} splits two factors", mesh_.axis_name(axis));
        }
        split_ |= bit;
      }
    }
  }

  // The operands' partial sums, which the op must be linear in, and what its reduced factors add.
  void verify_partial() {
    AxisMask incoming = 0;
    uint32_t partial = 0;
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      const Sharding& s = sharding(node_->inputs[i]);
      if (s.partial == 0) {
        continue;
      }
      if (s.combine != Combine::kSum || i >= 32) {
        fail("reads the partial {} {}", combine_name(s.combine), text(node_->inputs[i]));
      }
      if (partial != 0 && incoming != s.partial) {
        fail("its operands are partial over different axes");
      }
      partial |= 1u << i;
      incoming = s.partial;
    }
    if (partial != 0) {
      const Linearity allowed = linearity(*node_);
      const bool one = (partial & (partial - 1)) == 0 && (partial & allowed.any_one) != 0;
      const bool all = partial == allowed.all;
      if (!one && !all) {
        fail("is not linear in its partial operands (mask {:#b})", partial);
      }
      if ((incoming & split_) != 0) {
        fail("an axis that an operand is partial over splits another");
      }
    }
    verify_results(incoming);
  }

  void verify_results(AxisMask incoming) {
    for (size_t r = 0; r < node_->outputs.size(); ++r) {
      verify_result(r, incoming);
    }
  }

  // A result is partial over the factors that the op reduces and the result does not have.
  void verify_result(size_t r, AxisMask incoming) {
    AxisMask expected = incoming;
    Combine combine = Combine::kSum;
    for (size_t f = 0; f < axes_.size(); ++f) {
      if (rule_->factors[f].kind != FactorKind::kReduce || axes_[f].empty() ||
          has_factor(rule_->results[r], static_cast<int>(f))) {
        continue;
      }
      if (expected != 0 && combine != rule_->factors[f].combine) {
        fail("mixes partial sums with another combination");
      }
      combine = rule_->factors[f].combine;
      for (int axis : axes_[f]) {
        expected |= AxisMask{1} << axis;
      }
    }
    const ValueId output = node_->outputs[r];
    const Sharding& s = sharding(output);
    if (s.partial != expected || (expected != 0 && s.combine != combine)) {
      fail("{} should be {}", text(output), sharding_string({s.dims, expected, combine}, mesh_));
    }
  }

  // The results' shardings from the operands', as ops/collectives.cc says.
  void verify_collective() {
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      verify_moved(i);
    }
  }

  // Attribute `dim` or `to_dim` of tensor `i` of a collective; -1 where it has none.
  int dim_attr(std::string_view name, size_t i) const {
    const std::string lists = std::string(name) + "s";
    return static_cast<int>(node_->has_attr(lists)  ? node_->attr_ints(lists)[i]
                            : node_->has_attr(name) ? node_->attr_int(name)
                                                    : -1);
  }

  void verify_moved(size_t i) {
    const ValueId from = node_->inputs[i];
    const Sharding& to = sharding(node_->outputs[i]);
    Sharding expected = sharding(from);
    if (!node_->op->move) {
      if ((to.partial & ~expected.partial) != 0) {
        fail("{} cannot become partial as {}", text(from), text(node_->outputs[i]));
      }
      return;
    }
    AxisList axes;
    for (int64_t axis : node_->attr_ints("axes")) {
      if (axis < 0 || axis >= mesh_.num_axes()) {
        fail("axis {} is not in the mesh", axis);
      }
      axes.push_back(static_cast<int>(axis));
    }
    if (expected.partial != to.partial &&
        node_->attr_string("combine") != combine_name(expected.combine)) {
      fail("{} is not partial so", text(from));
    }
    if (const char* const why = apply_move(expected, *node_->op->move, axes, dim_attr("dim", i),
                                           dim_attr("to_dim", i), mesh_)) {
      fail("{} {}", text(from), why);
    }
    if (to != expected) {
      fail("{} should be {}", text(node_->outputs[i]), sharding_string(expected, mesh_));
    }
  }

  const Graph& graph_;
  const DeviceMesh& mesh_;
  const Node* node_ = nullptr;
  Signatures signatures_;
  const ShardingRule* rule_ = nullptr;
  SmallVector<AxisList, 8> axes_;  // per factor
  SmallVector<bool, 8> is_known_;
  AxisMask split_ = 0;  // axes of all factors
};

}  // namespace

void verify_shardings(const Graph& graph, const DeviceMesh& mesh) {
  ShardingVerifier(graph, mesh).run_values();
}

void verify_sharded(const Graph& graph, const DeviceMesh& mesh) {
  ShardingVerifier(graph, mesh).run();
  for (const Output& output : graph.outputs) {
    const Sharding& sharding = *graph.values[output.value].sharding;
    MESHTRAIN_CHECK(sharding.partial == 0, "output {} is partial: {}", output.name,
                    sharding_string(sharding, mesh));
  }
  for (const Update& update : graph.updates) {
    const Sharding& sharding = *graph.values[update.value].sharding;
    MESHTRAIN_CHECK(sharding == graph.variables[update.variable].layout.storage,
                    "the update of {} lies {}, its storage {}",
                    graph.variables[update.variable].path, sharding_string(sharding, mesh),
                    sharding_string(graph.variables[update.variable].layout.storage, mesh));
  }
}

}  // namespace meshtrain
