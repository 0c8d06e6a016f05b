// Random models on random meshes under random layouts, pins and ZeRO levels, in float64: every
// intermediate tensor, every gradient and every updated weight equals one device's.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "exec/executor.h"
#include "ir/op.h"
#include "passes/layouts.h"
#include "passes/memory.h"
#include "passes/pipeline.h"
#include "support/small_models.h"

using namespace meshtrain;
using testing::StepBuilder;

namespace {

constexpr int kCases = 500;
constexpr double kTolerance = 1e-9;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(limit));
  }
  bool chance(int percent) { return below(100) < percent; }
  double normal() { return static_cast<double>(below(2001) - 1000) / 700.0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int64_t>(values.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// One random layer on a (batch, width) value.
ValueId random_layer(StepBuilder& s, Random& random, ValueId h, int index,
                     std::vector<std::string>& pins) {
  Builder& b = s.b;
  const auto scope = b.scope(fmt::format("layer{}", index));
  const int64_t batch = b.shape(h)[0];
  const int64_t width = b.shape(h)[1];
  const std::string name = fmt::format("l{}", index);
  switch (random.below(9)) {
    case 0:
    case 1:
      h = s.dense(name, h, random.pick<int64_t>({4, 6, 8, 12}), random.chance(60));
      h = b.unary(std::string_view(random.pick({"tanh", "relu", "sigmoid"})), h);
      break;
    case 2: {  // a two-layer block with a residual connection
      const ValueId up = b.unary("relu", s.dense(name + "_up", h, 2 * width, random.chance(50)));
      h = b.add(h, s.dense(name + "_down", up, width, random.chance(50)));
      break;
    }
    case 3: {  // softmax over the features
      const ValueId e = b.exp(b.sub(h, b.reduce_max(h, {1}, true)));
      h = b.div(e, b.reduce_sum(e, {1}, true));
      break;
    }
    case 4: {  // normalisation with a scale
      const ValueId centred = b.sub(h, b.reduce_mean(h, {1}, true));
      const ValueId variance = b.reduce_mean(b.square(centred), {1}, true);
      h = b.mul(b.mul(centred, b.unary("rsqrt", b.add(variance, 1e-3))),
                s.weight(name + "/scale", {width}));
      break;
    }
    case 5: {  // split the features in two, mix them, merge again
      const ValueId split = b.reshape(h, {batch, 2, width / 2});
      const ValueId mixed =
          b.einsum("bgi,io->bgo", {split, s.weight(name + "/mix", {width / 2, 4})});
      h = b.reshape(b.transpose(mixed, {0, 2, 1}), {batch, 8});
      break;
    }
    case 6: {  // two branches side by side
      const ValueId left = s.dense(name + "_a", h, 4, false);
      const ValueId right = b.neg(s.dense(name + "_b", h, 8, true));
      h = b.concat({left, right}, 1);
      break;
    }
    case 7: {
      const ValueId step = b.constant(7, DType::kInt64);
      h = b.dropout(h, 0.3, step, 11);
      break;
    }
    default:
      h = b.concat({b.slice(h, 1, 0, width / 2), b.mul(b.slice(h, 1, width / 2, width), 0.5)}, 1);
  }
  if (random.chance(30)) {
    pins.push_back(name + "/output");
    h = b.pin(h, pins.back());
  }
  return h;
}

struct Model {
  Graph graph;
  std::vector<std::string> pins;
  std::map<std::string, Shape> pin_shapes;
};

Model random_model(Random& random) {
  StepBuilder s(8, random.pick<int64_t>({4, 8}), 4);
  Model model;
  ValueId h = s.x;
  if (random.chance(30)) {
    const ValueId ids = s.b.input("ids", {8, 3}, DType::kInt32, true);
    const ValueId rows = s.b.gather_rows(s.weight("tok/embeddings", {16, s.b.shape(h)[1]}), ids);
    h = s.b.add(h, s.b.reduce_sum(rows, {1}));
  }
  const int64_t layers = 1 + random.below(4);
  for (int64_t i = 0; i < layers; ++i) {
    h = random_layer(s, random, h, static_cast<int>(i), model.pins);
  }
  model.graph = s.finish(s.dense("head", h, 4, true));
  for (const Node& node : model.graph.nodes) {
    if (node.op->name == "pin") {
      model.pin_shapes[node.attr_string("key")] = model.graph.shape(node.outputs[0]);
    }
  }
  // Everything that holds its value until the end of the step is read.
  const std::vector<std::string_view> moving = {"parameter", "var_use", "reshard", "input"};
  for (const Node& node : model.graph.nodes) {
    const bool stays = std::find(moving.begin(), moving.end(), node.op->name) == moving.end();
    for (const ValueId v : node.outputs) {
      if (stays && model.graph.dtype(v) == DType::kFloat64) {
        model.graph.outputs.push_back({fmt::format("%{} {}", v, node.path), v});
      }
    }
  }
  return model;
}

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

// Each axis goes to a random dimension that it divides, or nowhere.
Sharding random_sharding(Random& random, const Shape& shape, const DeviceMesh& mesh, int percent) {
  Sharding out = Sharding::replicated(shape.size());
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
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

struct Layout {
  DeviceMesh mesh;
  AxisList batch_axes;
  int zero = 0;
  AxisList zero_axes;
  std::vector<Sharding> weights;
  std::map<std::string, Sharding> pins;
};

Layout random_layout(Random& random, const Model& model) {
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
  for (const Variable& v : model.graph.variables) {
    out.weights.push_back(random_sharding(random, v.shape, out.mesh, 40));
  }
  for (const auto& [key, shape] : model.pin_shapes) {
    out.pins[key] = random_sharding(random, shape, out.mesh, 50);
  }
  return out;
}

Layout one_device(const Model& model) {
  Layout out;
  out.mesh = DeviceMesh({1}, {"data"});
  out.batch_axes = {0};  // an axis of size 1 splits nothing
  for (const Variable& v : model.graph.variables) {
    out.weights.push_back(Sharding::replicated(v.shape.size()));
  }
  for (const auto& [key, shape] : model.pin_shapes) {
    out.pins[key] = Sharding::replicated(shape.size());
  }
  return out;
}

using Tensors = std::map<std::string, HostTensor>;

// Two steps of the model under a layout: all outputs and the weights afterwards.
Tensors run(const Model& model, const Layout& layout, uint64_t data_seed, bool read_all) {
  Graph graph = model.graph;
  if (!read_all) {
    graph.outputs.resize(1);  // the loss alone: pending sums travel as they do in training
  }
  AxisMask batch = 0;
  for (const int axis : layout.batch_axes) {
    batch |= AxisMask{1} << axis;
  }
  assign_layouts(graph, layout.weights, {batch, layout.zero, layout.zero_axes}, layout.mesh);
  CompileOptions options;
  options.propagate.batch_axes = layout.batch_axes;
  options.propagate.pins = layout.pins;
  Compiled compiled = compile(graph, layout.mesh, options);
  CHECK(memory_plan_problem(compiled.program) == "");

  Random random(data_seed);
  VariableStore store(layout.mesh, graph.variables);
  for (int v = 0; v < static_cast<int>(graph.variables.size()); ++v) {
    HostTensor weight(DType::kFloat64, graph.variables[v].shape);
    for (int64_t i = 0; i < weight.size(); ++i) {
      weight.data<double>()[i] = 0.5 * random.normal();
    }
    store.write(v, weight);
  }
  Executor executor(std::move(compiled.program), make_worker_pool(2), store);
  for (int step = 0; step < 2; ++step) {
    // Inputs by name, so that their order in the program does not matter.
    for (const char* name : {"x", "y", "ids"}) {
      for (size_t i = 0; i < executor.program().inputs.size(); ++i) {
        if (executor.program().inputs[i].name != name) {
          continue;
        }
        const Buffer& buffer = executor.program().buffers[executor.program().inputs[i].buffer];
        HostTensor value(buffer.dtype, buffer.global_shape);
        for (int64_t k = 0; k < value.size(); ++k) {
          value.set(k, buffer.dtype == DType::kInt32 ? static_cast<double>(random.below(16))
                                                     : random.normal());
        }
        executor.set_input(static_cast<int>(i), value.bytes(), value.num_bytes());
      }
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

void compare(const Tensors& sharded, const Tensors& expected) {
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

}  // namespace

TEST_CASE("random layouts: every tensor of every sharded step equals one device's") {
  const char* asked = std::getenv("MESHTRAIN_RANDOM_CASES");
  const int cases = asked != nullptr ? std::atoi(asked) : kCases;
  for (int seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<uint64_t>(seed) * 7919 + 1);
    const Model model = random_model(random);
    const Layout layout = random_layout(random, model);
    const Layout single = one_device(model);
    const uint64_t data_seed = static_cast<uint64_t>(seed) + 12345;
    compare(run(model, layout, data_seed, true), run(model, single, data_seed, true));
    compare(run(model, layout, data_seed, false), run(model, single, data_seed, false));
  }
}
