#include "support/layout_case.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "exec/executor.h"
#include "ir/op.h"
#include "passes/layouts.h"
#include "passes/memory.h"
#include "passes/pipeline.h"
#include "passes/row_fusion.h"

namespace meshtrain::testing {
namespace {

constexpr double kTolerance = 1e-9;

DeviceMesh random_mesh(Random& random) {
  switch (random.below(5)) {
    case 0:
      return DeviceMesh({4}, {"data"});
    case 1:
      return DeviceMesh({2, 2}, {"data", "model"});
    case 2:
      return DeviceMesh({4, 2}, {"data", "model"});
    case 3:
      return DeviceMesh({1, 4}, {"data", "model"});
    default:
      return DeviceMesh({2, 2, 2}, {"data", "fsdp", "model"});
  }
}

// Each axis goes to a random dimension that it divides, or nowhere; those of one dimension stand
// there in any order.
Sharding random_sharding(Random& random, const Shape& shape, const DeviceMesh& mesh, int percent) {
  Sharding out = Sharding::replicated(shape.size());
  std::vector<int> axes(static_cast<size_t>(mesh.num_axes()));
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t i = axes.size(); i > 1; --i) {
    std::swap(axes[i - 1], axes[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  for (const int axis : axes) {
    if (shape.empty() || mesh.axis_size(axis) == 1 || !random.chance(percent)) {
      continue;
    }
    const size_t dim = static_cast<size_t>(random.below(static_cast<int64_t>(shape.size())));
    if (shape[dim] % (mesh.size_of(out.dims[dim]) * mesh.axis_size(axis)) == 0) {
      out.dims[dim].push_back(axis);
    }
  }
  return out;
}

// Counters and metrics begin at zero.
HostTensor first_value(const Variable& variable, Random& random) {
  HostTensor value(variable.dtype, variable.shape);
  const bool is_variance = variable.path.find("variance") != std::string::npos;
  for (int64_t i = 0; i < value.size() && variable.role == VariableRole::kWeight; ++i) {
    const double drawn = 0.5 * random.normal();
    value.set(i, is_variance ? 0.5 + std::abs(drawn) : drawn);
  }
  return value;
}

HostTensor input_value(const std::string& name, const Buffer& buffer, Random& random) {
  HostTensor value(buffer.dtype, buffer.global_shape);
  for (int64_t i = 0; i < value.size(); ++i) {
    value.set(i, name == "learning_rate"         ? 0.05
                 : buffer.dtype == DType::kInt32 ? static_cast<double>(random.below(16))
                                                 : random.normal());
  }
  return value;
}

}  // namespace

LayoutCase layout_case(Graph graph) {
  LayoutCase out{std::move(graph), {}};
  for (const Node& node : out.graph.nodes) {
    if (node.op->name == "pin") {
      out.pin_shapes[node.attr_string("key")] = out.graph.shape(node.outputs[0]);
    }
  }
  const std::vector<std::string_view> moving = {"parameter", "var_use", "reshard", "input"};
  for (const Node& node : out.graph.nodes) {
    const bool stays = std::find(moving.begin(), moving.end(), node.op->name) == moving.end();
    for (const ValueId v : node.outputs) {
      if (stays && out.graph.dtype(v) == DType::kFloat64) {
        out.graph.outputs.push_back({fmt::format("%{} {}", v, node.path), v});
      }
    }
  }
  return out;
}

Layout random_layout(Random& random, const LayoutCase& c) {
  Layout out;
  out.mesh = random_mesh(random);
  if (out.mesh.axis_size(0) > 1) {
    out.batch_axes = {0};
  }
  if (out.mesh.num_axes() == 3 && random.chance(60)) {
    out.batch_axes.push_back(1);
  }
  out.zero = static_cast<int>(random.below(4));
  out.zero_axes = out.batch_axes;
  if (out.batch_axes.size() == 2 && random.chance(50)) {
    out.zero_axes = {1};
  }
  for (const Variable& v : c.graph.variables) {
    out.weights.push_back(random_sharding(random, v.shape, out.mesh, 40));
  }
  for (const auto& [key, shape] : c.pin_shapes) {
    out.pins[key] = random_sharding(random, shape, out.mesh, 50);
  }
  return out;
}

Layout one_device(const LayoutCase& c) {
  Layout out;
  out.mesh = DeviceMesh({1}, {"data"});
  out.batch_axes = {0};  // an axis of size 1 splits nothing
  for (const Variable& v : c.graph.variables) {
    out.weights.push_back(Sharding::replicated(v.shape.size()));
  }
  for (const auto& [key, shape] : c.pin_shapes) {
    out.pins[key] = Sharding::replicated(shape.size());
  }
  return out;
}

Tensors run_layout(const LayoutCase& c, const Layout& layout, uint64_t data_seed, bool read_all,
                   const Place& place) {
  Graph graph = c.graph;
  if (!read_all) {
    graph.outputs.resize(1);  // the loss alone: partial sums travel as they do in training
  }
  AxisMask batch = 0;
  for (const int axis : layout.batch_axes) {
    batch |= AxisMask{1} << axis;
  }
  assign_layouts(graph.variables, layout.weights, {batch, layout.zero, layout.zero_axes},
                 layout.mesh);
  CompileOptions options;
  options.propagate.batch_axes = layout.batch_axes;
  options.propagate.pins = layout.pins;
  options.fixed_reductions = place.fixed_reductions;
  options.regather_above = data_seed % 2 == 0 ? 0 : INT64_MAX;
  if (place.group != nullptr) {
    options.processes = place.group->size();
    options.rank = place.group->rank();
  }
  Compiled compiled = compile(graph, layout.mesh, options);
  if (place.device != nullptr) {
    fuse_rows(compiled.program);
  }
  for (const Node& node : compiled.graph.nodes) {
    MESHTRAIN_CHECK(!node.op->collective || !node.attr_string("cause").empty(),
                    "{} is there for no reason", node.path);
  }
  const std::string problem = memory_plan_problem(compiled.program);
  MESHTRAIN_CHECK(problem.empty(), "{}", problem);

  Random random(data_seed);
  VariableStore store(compiled.program.part, graph.variables, place.device,
                      {.group = place.group, .monitor = nullptr});
  for (int v = 0; v < static_cast<int>(graph.variables.size()); ++v) {
    store.write(v, first_value(graph.variables[v], random));
  }
  Executor executor(std::move(compiled.program), make_worker_pool(2), store);
  for (int step = 0; step < 2; ++step) {
    if (step == 1 && place.before_second_step != nullptr) {
      place.before_second_step();
    }
    // By name, so that their order in the program does not matter.
    std::map<std::string, int> inputs;
    for (size_t i = 0; i < executor.program().inputs.size(); ++i) {
      inputs[executor.program().inputs[i].name] = static_cast<int>(i);
    }
    for (const auto& [name, index] : inputs) {
      const Buffer& buffer = executor.program().buffers[executor.program().inputs[index].buffer];
      const HostTensor value = input_value(name, buffer, random);
      const Executor::RowRange rows = executor.input_rows(index);
      const size_t row_bytes =
          value.num_bytes() /
          std::max<size_t>(1, buffer.global_shape.empty() ? 1 : buffer.global_shape[0]);
      executor.set_input(index, value.bytes() + rows.first * row_bytes, rows.count * row_bytes);
    }
    executor.run();
  }
  Tensors out;
  for (size_t i = 0; i < executor.program().outputs.size(); ++i) {
    out[executor.program().outputs[i].name] = executor.output(static_cast<int>(i));
  }
  for (int v = 0; v < static_cast<int>(graph.variables.size()); ++v) {
    out[graph.variables[v].path] = store.read(v);
  }
  return out;
}

void compare_tensors(const Tensors& sharded, const Tensors& expected) {
  REQUIRE(sharded.size() == expected.size());
  for (const auto& [name, tensor] : sharded) {
    const HostTensor& wanted = expected.at(name);
    REQUIRE(tensor.shape() == wanted.shape());
    double worst = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double off = std::abs(tensor.at(i) - wanted.at(i)) / (1 + std::abs(wanted.at(i)));
      worst = off <= worst ? worst : off;  // NaN is worst
    }
    CHECK_MESSAGE(worst <= kTolerance, name, " is off by ", worst);
  }
}

}  // namespace meshtrain::testing
