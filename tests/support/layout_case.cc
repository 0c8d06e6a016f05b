#include "support/layout_case.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/op.h"

namespace meshtrain::testing {
namespace {

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

HostTensor input_value(const std::string& name, const Value& input, Random& random) {
  HostTensor value(input.dtype, input.shape);
  for (int64_t i = 0; i < value.size(); ++i) {
    value.set(i, name == "learning_rate"        ? 0.05
                 : input.dtype == DType::kInt32 ? static_cast<double>(random.below(16))
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
  std::map<std::string, const Value*> inputs;  // by name, so that their order does not matter
  for (const Node& node : graph.nodes) {
    if (node.op->name == "input") {
      inputs[node.attr_string("name")] = &c.graph.values[node.outputs[0]];
    }
  }
  Random random(data_seed);
  ProgramRunner runner(graph.variables, layout, place, data_seed % 2 == 0 ? 0 : INT64_MAX);
  for (int v = 0; v < static_cast<int>(c.graph.variables.size()); ++v) {
    runner.write(v, first_value(c.graph.variables[v], random));
  }
  const int number = runner.add(std::move(graph));
  Tensors out;
  for (int step = 0; step < 2; ++step) {
    if (step == 1 && place.before_second_step != nullptr) {
      place.before_second_step();
    }
    Tensors fed;
    for (const auto& [name, value] : inputs) {
      fed[name] = input_value(name, *value, random);
    }
    out = runner.run(number, fed);
  }
  for (int v = 0; v < static_cast<int>(c.graph.variables.size()); ++v) {
    out[c.graph.variables[v].path] = runner.read(v);
  }
  return out;
}

double allowed_error(std::span<const double> expected, double tolerance) {
  double largest = 0;
  for (const double value : expected) {
    const double size = std::abs(value);
    largest = size > largest && std::isfinite(size) ? size : largest;
  }
  return tolerance * (largest > tolerance ? largest : 1);
}

void compare_tensors(const Tensors& sharded, const Tensors& expected, double tolerance) {
  REQUIRE(sharded.size() == expected.size());
  for (const auto& [name, tensor] : sharded) {
    const HostTensor& wanted = expected.at(name);
    REQUIRE(tensor.shape() == wanted.shape());
    CHECK(tensor.dtype() == wanted.dtype());
    std::vector<double> values;
    for (int64_t i = 0; i < wanted.size(); ++i) {
      values.push_back(wanted.at(i));
    }
    const double allowed = allowed_error(values, tolerance);
    double worst = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double a = tensor.at(i), b = values[static_cast<size_t>(i)];
      const bool is_equal = a == b || (std::isnan(a) && std::isnan(b));
      const double off = is_equal ? 0 : std::abs(a - b);
      worst = off <= worst ? worst : off;  // NaN is worst
    }
    CHECK_MESSAGE(worst <= allowed, name, " is off by ", worst, ", ", allowed, " is allowed");
  }
}

}  // namespace meshtrain::testing
