#include "op/rule_oracle.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "support/interpreter.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

bool is_full(const ShardingRule& rule, const FactorAxes& axes, int factor, const DeviceMesh& mesh) {
  return mesh.size_of(axes[factor]) == rule.factors[factor].size;
}

bool is_allowed(const ShardingRule& rule, const FactorAxes& axes, const DeviceMesh& mesh) {
  for (size_t f = 0; f < axes.size(); ++f) {
    const bool is_split = !axes[f].empty();
    if (is_split && (rule.factors[f].kind == FactorKind::kGather ||
                     rule.factors[f].size % mesh.size_of(axes[f]) != 0)) {
      return false;
    }
  }
  for (const auto* tensors : {&rule.operands, &rule.results}) {
    for (const TensorFactors& tensor : *tensors) {
      for (const FactorList& dim : tensor) {
        bool all_full = true;
        for (int factor : dim) {
          if (!all_full && !axes[factor].empty()) {
            return false;
          }
          all_full = all_full && is_full(rule, axes, factor, mesh);
        }
      }
    }
  }
  // A sum and a maximum cannot be partial together.
  std::optional<Combine> combine;
  for (size_t f = 0; f < axes.size(); ++f) {
    if (rule.factors[f].kind == FactorKind::kReduce && !axes[f].empty()) {
      if (combine && *combine != rule.factors[f].combine) {
        return false;
      }
      combine = rule.factors[f].combine;
    }
  }
  return true;
}

Sharding sharding_of(const TensorFactors& tensor, const FactorAxes& axes) {
  Sharding sharding = Sharding::replicated(tensor.size());
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    for (int factor : tensor[dim]) {
      sharding.dims[dim].insert(sharding.dims[dim].end(), axes[factor].begin(), axes[factor].end());
    }
  }
  return sharding;
}

ShardOf local_shard(const Shape& global, const Sharding& sharding, const DeviceMesh& mesh,
                    int64_t device) {
  return {global, local_start(global, sharding, mesh, device), local_shape(global, sharding, mesh)};
}

bool is_near(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-12 * std::max({1.0, std::abs(a), std::abs(b)});
}

// Puts the shards of one result together.
class Assembly {
 public:
  Assembly(const Shape& shape, Sharding sharding, const DeviceMesh& mesh)
      : mesh_(mesh),
        shape_(shape),
        sharding_(std::move(sharding)),
        terms_(mesh.size_of(sharding_.partial), std::vector<double>(num_elements(shape), kUnset)) {}

  // False when another device has put something else in the same place.
  bool add(const HostTensor& shard, int64_t device) {
    const std::vector<int64_t> start = local_start(shape_, sharding_, mesh_, device);
    std::vector<double>& term = terms_[distinct_shard(mesh_, sharding_.partial, device)];
    int64_t index = 0;
    for (Coordinates at(shard.shape()); !at.done(); at.next()) {
      std::vector<int64_t> global = at.all();
      for (size_t dim = 0; dim < global.size(); ++dim) {
        global[dim] += start[dim];
      }
      double& place = term[index_of(global, shape_)];
      const double value = shard.at(index++);
      if (!std::isnan(place) && place != value) {
        return false;
      }
      place = value;
    }
    return true;
  }

  double at(int64_t index) const {
    double total = terms_[0][index];
    for (size_t t = 1; t < terms_.size(); ++t) {
      const double term = terms_[t][index];
      total = sharding_.combine == Combine::kSum   ? total + term
              : sharding_.combine == Combine::kMax ? std::max(total, term)
                                                   : std::min(total, term);
    }
    return total;
  }

 private:
  static constexpr double kUnset = std::numeric_limits<double>::quiet_NaN();
  const DeviceMesh& mesh_;
  Shape shape_;
  Sharding sharding_;
  std::vector<std::vector<double>> terms_;  // per position along the partial axes
};

void extend(const ShardingRule& rule, const DeviceMesh& mesh, int axis, FactorAxes& axes,
            std::vector<FactorAxes>& out) {
  if (axis == mesh.num_axes()) {
    if (is_allowed(rule, axes, mesh)) {
      out.push_back(axes);
    }
    return;
  }
  extend(rule, mesh, axis + 1, axes, out);
  for (AxisList& list : axes) {
    // Major and minor to the axes that are there: all orders come up.
    for (bool front : {true, false}) {
      if (!front && list.empty()) {
        continue;
      }
      list.insert(front ? list.begin() : list.end(), axis);
      extend(rule, mesh, axis + 1, axes, out);
      list.erase(front ? list.begin() : list.end() - 1);
    }
  }
}

}  // namespace

HostTensor shard_of(const HostTensor& tensor, const std::vector<int64_t>& start,
                    const Shape& shape) {
  HostTensor out(tensor.dtype(), shape);
  int64_t index = 0;
  for (Coordinates at(shape); !at.done(); at.next()) {
    std::vector<int64_t> from = at.all();
    for (size_t dim = 0; dim < from.size(); ++dim) {
      from[dim] += start[dim];
    }
    out.set(index++, tensor.at(index_of(from, tensor.shape())));
  }
  return out;
}

std::vector<FactorAxes> assignments(const ShardingRule& rule, const DeviceMesh& mesh) {
  std::vector<FactorAxes> out;
  FactorAxes axes(rule.factors.size());
  extend(rule, mesh, 0, axes, out);
  return out;
}

std::optional<std::string> rule_form_problem(const Graph& graph, const Node& node,
                                             const ShardingRule& rule) {
  if (rule.operands.size() != node.inputs.size() || rule.results.size() != node.outputs.size()) {
    return "another number of tensors";
  }
  const auto problem = [&](const TensorFactors& tensor,
                           const Shape& shape) -> std::optional<std::string> {
    if (tensor.size() != shape.size()) {
      return fmt::format("rank {} for {}", tensor.size(), shape_string(shape));
    }
    std::vector<int> seen;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      int64_t product = 1;
      for (int factor : tensor[dim]) {
        if (factor < 0 || factor >= static_cast<int>(rule.factors.size())) {
          return fmt::format("factor {} does not exist", factor);
        }
        product *= rule.factors[factor].size;
        seen.push_back(factor);
      }
      const bool is_broadcast = tensor[dim].empty() && shape[dim] == 1;
      if (product != shape[dim] && !is_broadcast) {
        return fmt::format("the factors of dimension {} make {} of {}", dim, product,
                           shape_string(shape));
      }
    }
    std::sort(seen.begin(), seen.end());
    if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) {
      return "a factor is twice in one tensor";
    }
    return std::nullopt;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (auto found = problem(rule.operands[i], graph.shape(node.inputs[i]))) {
      return found;
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (auto found = problem(rule.results[i], graph.shape(node.outputs[i]))) {
      return found;
    }
  }
  return std::nullopt;
}

std::optional<std::string> rule_problem(const Graph& graph, const Node& node,
                                        const ShardingRule& rule, const FactorAxes& axes,
                                        const DeviceMesh& mesh,
                                        const std::vector<HostTensor>& operands,
                                        const std::vector<HostTensor>& expected) {
  std::vector<Sharding> in, out;
  for (const TensorFactors& tensor : rule.operands) {
    in.push_back(sharding_of(tensor, axes));
  }
  std::vector<Assembly> assemblies;
  for (size_t i = 0; i < rule.results.size(); ++i) {
    Sharding sharding = sharding_of(rule.results[i], axes);
    for (size_t f = 0; f < axes.size(); ++f) {
      if (rule.factors[f].kind == FactorKind::kReduce && !axes[f].empty() &&
          !has_factor(rule.results[i], static_cast<int>(f))) {
        sharding.combine = rule.factors[f].combine;
        for (int axis : axes[f]) {
          sharding.partial |= AxisMask{1} << axis;
        }
      }
    }
    check_sharding(sharding, expected[i].shape(), mesh);
    assemblies.emplace_back(expected[i].shape(), sharding, mesh);
    out.push_back(std::move(sharding));
  }
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    std::vector<HostTensor> shards;
    std::vector<const HostTensor*> pointers;
    std::vector<ShardOf> operand_shards, result_shards;
    std::vector<DType> dtypes;
    for (size_t i = 0; i < operands.size(); ++i) {
      operand_shards.push_back(local_shard(operands[i].shape(), in[i], mesh, device));
      shards.push_back(shard_of(operands[i], operand_shards[i].start, operand_shards[i].shape));
    }
    for (const HostTensor& shard : shards) {
      pointers.push_back(&shard);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      result_shards.push_back(local_shard(expected[i].shape(), out[i], mesh, device));
      dtypes.push_back(graph.dtype(node.outputs[i]));
    }
    const std::vector<HostTensor> results =
        interpret_node(node, pointers, operand_shards, result_shards, dtypes);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!assemblies[i].add(results[i], device)) {
        return fmt::format("result {} {}: devices disagree about one shard", i,
                           sharding_string(out[i], mesh));
      }
    }
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    for (int64_t j = 0; j < expected[i].size(); ++j) {
      if (!is_near(assemblies[i].at(j), expected[i].at(j))) {
        return fmt::format("result {} {}: element {} is {}, not {}", i,
                           sharding_string(out[i], mesh), j, assemblies[i].at(j),
                           expected[i].at(j));
      }
    }
  }
  return std::nullopt;
}

}  // namespace meshtrain
