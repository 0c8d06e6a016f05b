#include "one_step.h"

#include <algorithm>

namespace meshtrain::testing {

int ProgramBuilder::buffer(const Shape& global, DType dtype, const Sharding& sharding) {
  Buffer b;
  b.global_shape = global;
  b.shape = local_shape(global, sharding, program_.part.mesh());
  b.dtype = dtype;
  b.sharding = sharding;
  b.axes = sharding.used_axes();
  b.num_shards = program_.part.num_shards(b.axes);
  b.shard_bytes = num_elements(b.shape) * static_cast<int64_t>(dtype_size(dtype));
  b.offset = program_.arena_bytes;
  program_.arena_bytes += (b.shard_bytes * b.num_shards + 63) / 64 * 64;
  program_.buffers.push_back(b);
  return static_cast<int>(program_.buffers.size()) - 1;
}

int ProgramBuilder::input(const Shape& global, DType dtype, const Sharding& sharding) {
  const int id = buffer(global, dtype, sharding);
  program_.buffers[id].is_input = true;
  program_.inputs.push_back({std::to_string(program_.inputs.size()), id});
  return id;
}

void ProgramBuilder::step(std::string_view op, std::vector<int> inputs, std::vector<int> outputs,
                          Attrs attrs) {
  ProgramStep step;
  step.op = &find_op(op);
  step.path = "test/" + std::string(op);
  step.attrs = std::move(attrs);
  for (int b : inputs)
    step.axes |= program_.buffers[b].axes;
  for (int b : outputs)
    step.axes |= program_.buffers[b].axes;
  const bool once = inputs.empty();
  step.inputs = std::move(inputs);
  step.outputs = std::move(outputs);
  (once ? program_.prologue : program_.steps).push_back(std::move(step));
}

void ProgramBuilder::output(int id) {
  const Buffer from = program_.buffers[id];
  if (from.sharding.partial != 0) {
    const int reduced = buffer(from.global_shape, from.dtype, from.sharding.reduced());
    step("all_reduce", {id}, {reduced});
    id = reduced;
  }
  program_.outputs.push_back({std::to_string(program_.outputs.size()), id});
}

Program ProgramBuilder::take() {
  return std::move(program_);
}

StepShardings shardings_of(const ShardingRule& rule, const FactorAxes& axes) {
  const auto dims_of = [&](const TensorFactors& factors) {
    Sharding sharding;
    for (const FactorList& list : factors) {
      sharding.dims.push_back(list.empty() ? AxisList{} : axes[list[0]]);
    }
    return sharding;
  };
  StepShardings out;
  for (const TensorFactors& factors : rule.operands)
    out.operands.push_back(dims_of(factors));
  for (const TensorFactors& factors : rule.results) {
    Sharding sharding = dims_of(factors);
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].kind != FactorKind::kReduce || axes[f].empty() ||
          has_factor(factors, static_cast<int>(f)))
        continue;
      for (int axis : axes[f])
        sharding.partial |= AxisMask{1} << axis;
      sharding.combine = rule.factors[f].combine;
    }
    out.results.push_back(std::move(sharding));
  }
  return out;
}

namespace {

// A factor that stands behind another one in a dimension would interleave the data.
bool is_major_everywhere(const ShardingRule& rule, int factor) {
  const auto fits = [factor](const TensorFactors& tensor) {
    return std::all_of(tensor.begin(), tensor.end(), [factor](const FactorList& list) {
      const auto found = std::find(list.begin(), list.end(), factor);
      return found == list.end() || found == list.begin();
    });
  };
  return std::all_of(rule.operands.begin(), rule.operands.end(), fits) &&
         std::all_of(rule.results.begin(), rule.results.end(), fits);
}

}  // namespace

std::vector<FactorAxes> ways_to_split(const ShardingRule& rule, const DeviceMesh& mesh) {
  const size_t n = rule.factors.size();
  std::vector<FactorAxes> ways = {FactorAxes(n)};
  const auto can = [&](size_t f, const AxisList& axes) {
    return rule.factors[f].kind != FactorKind::kGather &&
           is_major_everywhere(rule, static_cast<int>(f)) &&
           rule.factors[f].size % mesh.size_of(axes) == 0;
  };
  const std::vector<AxisList> lists = mesh.num_axes() == 1
                                          ? std::vector<AxisList>{{0}}
                                          : std::vector<AxisList>{{0}, {1}, {0, 1}, {1, 0}};
  for (size_t f = 0; f < n; ++f) {
    for (const AxisList& axes : lists) {
      if (!can(f, axes))
        continue;
      ways.emplace_back(n);
      ways.back()[f] = axes;
    }
  }
  for (size_t f = 0; f < n && mesh.num_axes() > 1; ++f) {
    for (size_t g = 0; g < n; ++g) {
      const bool one_combine = rule.factors[f].kind != FactorKind::kReduce ||
                               rule.factors[g].kind != FactorKind::kReduce ||
                               rule.factors[f].combine == rule.factors[g].combine;
      if (f == g || !one_combine || !can(f, {0}) || !can(g, {1}))
        continue;
      ways.emplace_back(n);
      ways.back()[f] = {0};
      ways.back()[g] = {1};
    }
  }
  return ways;
}

}  // namespace meshtrain::testing
