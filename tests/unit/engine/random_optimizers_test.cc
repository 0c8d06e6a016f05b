// Random optimizers, clips, decays, averages, regularizers and constraints under random meshes,
// layouts and ZeRO levels, in float64: weights and everything the optimizer keeps equal one
// device's after some steps.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/text.h"
#include "config/catalogue.h"
#include "support/engine_case.h"
#include "support/layout_case.h"
#include "support/sampled.h"
#include "support/test_gpu.h"

using namespace meshtrain;
using namespace meshtrain::test;
using meshtrain::testing::compare_tensors;
using meshtrain::testing::Random;
using meshtrain::testing::Tensors;

namespace {

constexpr size_t kCases = 120;
constexpr int64_t kBatch = 8, kSteps = 6;

std::string random_rule(Random& random) {
  return random.pick<std::string>(
      {"SGD: {momentum: 0.9, nesterov: true", "SGD: {learning_rate: 0.1",
       "RMSprop: {learning_rate: 0.01, centered: true, momentum: 0.5",
       "Adam: {learning_rate: 0.01, amsgrad: true", "AdamW: {learning_rate: 0.01",
       "Adamax: {learning_rate: 0.01", "Nadam: {learning_rate: 0.01",
       "Adagrad: {learning_rate: 0.01", "Adadelta: {learning_rate: 1.0",
       "Adafactor: {learning_rate: 0.1", "Adafactor: {learning_rate: 0.5, clip_threshold: 0.5",
       "Lion: {learning_rate: 0.01", "Lamb: {learning_rate: 0.01",
       "Ftrl: {learning_rate: 0.1, l1_regularization_strength: 0.01, beta: 0.1",
       "Muon: {learning_rate: 0.01",
       "Muon: {learning_rate: 0.01, nesterov: false, exclude_layers: [d2]",
       "ScheduleFreeAdamW: {learning_rate: 0.01, warmup_steps: 3"});
}

// "Adam: {...}"
std::string random_member(Random& random, bool accumulates) {
  std::string rule = random_rule(random);
  rule += random.pick<std::string>(
      {"", "", ", clipnorm: 0.1", ", global_clipnorm: 0.2", ", clipvalue: 0.02"});
  if (random.chance(30)) {
    rule += ", weight_decay: 0.1";
    rule += random.chance(50) ? ", exclude_from_weight_decay: [bias]" : "";
  }
  if (random.chance(30)) {
    rule += ", use_ema: true, ema_momentum: 0.8";
    rule += random.chance(50) ? ", ema_overwrite_frequency: 2" : "";
  }
  return rule + (accumulates ? ", gradient_accumulation_steps: 2}" : "}");
}

std::string random_optimizer(Random& random) {
  const bool accumulates = random.chance(25);
  std::string rule = random_member(random, accumulates);
  if (random.chance(25)) {
    rule = fmt::format(
        "MultiOptimizer: {{default_optimizer: {{{}}}, optimizer_map: {{\"d./.*\": {{{}}}, "
        "d2/bias: {{{}}}}}}}",
        rule, random_member(random, accumulates), random_member(random, accumulates));
  }
  if (random.chance(25)) {
    return "{LossScaleOptimizer: {inner_optimizer: {" + rule +
           "}, dynamic_growth_steps: 2, initial_scale: 8.0}}";
  }
  return "{" + rule + "}";
}

// Arguments of a layer with a kernel, beginning with a comma. `matrix`: the kernel has rank 2.
std::string random_penalties(Random& random, bool matrix) {
  std::string out;
  if (random.chance(40)) {
    out += ", kernel_regularizer: " +
           random.pick<std::string>({"l1", "l2", "{L1L2: {l1: 0.01, l2: 0.02}}"});
  } else if (matrix && random.chance(40)) {
    out += ", kernel_regularizer: {OrthogonalRegularizer: {factor: 0.1, mode: " +
           random.pick<std::string>({"rows", "columns"}) + "}}";
  }
  if (random.chance(40)) {
    out += ", kernel_constraint: " +
           random.pick<std::string>({"non_neg", "unit_norm", "{MaxNorm: {max_value: 0.9, axis: 1}}",
                                     "{MaxNorm: 0.5}", "{UnitNorm: {axis: [0, 1]}}",
                                     "{MinMaxNorm: {min_value: 0.5, max_value: 0.8, rate: 0.5}}"});
  }
  if (random.chance(30)) {
    out += ", bias_regularizer: l2, bias_constraint: max_norm";
  }
  if (random.chance(25)) {
    out += ", activity_regularizer: " + random.pick<std::string>({"l2", "{L1: 0.03}"});
  }
  return out;
}

struct Case {
  std::string model;         // YAML without a distribution
  std::string distribution;  // YAML of the distribution
};

const std::vector<std::pair<std::string, Shape>> kWeights = {
    {"d1/kernel", {6, 8}},  {"d1/bias", {8}},  {"e/kernel", {8, 2, 4}},  {"e/bias", {4}},
    {"d2/kernel", {8, 12}}, {"d2/bias", {12}}, {"head/kernel", {12, 4}}, {"head/bias", {4}}};

std::string random_distribution(Random& random) {
  struct Mesh {
    const char* text;
    std::vector<std::pair<const char*, int64_t>> axes;
  };
  const std::vector<Mesh> meshes = {
      {"shape: [4], axis_names: [data]", {{"data", 4}}},
      {"shape: [2, 2], axis_names: [data, model]", {{"data", 2}, {"model", 2}}},
      {"shape: [4, 2], axis_names: [data, model]", {{"data", 4}, {"model", 2}}},
      {"shape: [1, 4], axis_names: [data, model]", {{"model", 4}}},
      {"shape: [2, 4], axis_names: [data, model]", {{"data", 2}, {"model", 4}}}};
  const Mesh& mesh = meshes[static_cast<size_t>(random.below(5))];
  std::string map;
  for (const auto& [path, shape] : kWeights) {
    std::vector<std::string> dims(shape.size(), "null");
    bool any = false;
    for (const auto& [axis, size] : mesh.axes) {
      const auto dim = static_cast<size_t>(random.below(static_cast<int64_t>(shape.size())));
      if (random.chance(45) && shape[dim] % size == 0 && dims[dim] == "null") {
        dims[dim] = axis;
        any = true;
      }
    }
    if (any) {
      map += fmt::format("    {}: [{}]\n", path, join(dims, ", "));
    }
  }
  return fmt::format(
      "distribution:\n  type: ModelParallel\n  batch_dim_name: data\n  zero: {}\n"
      "  device_mesh: {{{}}}\n  layout_map:{}\n{}",
      random.below(4), mesh.text, map.empty() ? " {}" : "", map);
}

Case random_case(Random& random) {
  Case out;
  out.model = fmt::format(
      "seed: {}\ndtype_policy: float64\nmodel:\n  layers:\n    - Input: {{shape: [6]}}\n"
      "    - Dense: {{name: d1, units: 8, activation: tanh{}}}\n"
      "    - EinsumDense: {{name: e, equation: 'ab,bcd->acd', output_shape: [2, 4], bias_axes: d, "
      "activation: tanh{}}}\n    - Flatten\n"
      "    - Dense: {{name: d2, units: 12, activation: sigmoid{}}}\n"
      "    - Dense: {{name: head, units: 4{}}}\n"
      "compile: {{loss: mse, optimizer: {}}}\nfit: {{batch_size: 8}}\n",
      random.below(1000), random_penalties(random, true), random_penalties(random, false),
      random_penalties(random, true), random_penalties(random, true), random_optimizer(random));
  out.distribution = random_distribution(random);
  return out;
}

constexpr const char* kOneDevice =
    "distribution:\n  device_mesh: {shape: [1], axis_names: [data]}\n";

Dataset data_of(Random& random, bool with_nan) {
  const int64_t samples = kBatch * kSteps;
  HostTensor x(DType::kFloat64, {samples, 6}), y(DType::kFloat64, {samples, 4});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, random.normal());
  }
  for (int64_t i = 0; i < y.size(); ++i) {
    y.set(i, random.normal());
  }
  if (with_nan) {  // in one sample of the third step: on one device of a batch axis alone
    x.set((2 * kBatch + 5) * 6 + 1, std::numeric_limits<double>::quiet_NaN());
  }
  return dataset_of(std::move(x), std::move(y));
}

Tensors train(const std::string& yaml, const Dataset& data) {
  const Config config = config_from(on_test_gpu(yaml));
  EngineOptions options;
  options.num_workers = 2;
  Engine engine(config, data_spec(data), options);
  Tensors out;
  HostTensor losses(DType::kFloat64, {kSteps});
  for (int64_t step = 0; step < kSteps; ++step) {
    engine.train_step({&data, rows_of_step(step, kBatch, data.num_samples)});
    losses.set(step, std::isnan(engine.last_loss()) ? -1 : engine.last_loss());
  }
  for (const Variable& variable : engine.setup().variables()) {
    if (variable.role != VariableRole::kMetric) {
      out.emplace(variable.path, engine.read_variable(variable.path));
    }
  }
  out.emplace("losses", std::move(losses));
  engine.test_step({&data, rows_of_step(0, kBatch, data.num_samples)});
  HostTensor rate(DType::kFloat64, {2});
  rate.set(0, engine.learning_rate());
  rate.set(1, static_cast<double>(engine.iterations()));
  out.emplace("rate and iterations", std::move(rate));
  return out;
}

}  // namespace

TEST_CASE("random optimizers: weights and slots of every sharded run equal one device's") {
  for (const size_t seed : sampled_seeds(kCases, 4)) {
    CAPTURE(seed);
    Random random(seed * 7919 + 3);
    const Case drawn = random_case(random);
    CAPTURE(drawn.model);
    CAPTURE(drawn.distribution);
    const bool scaled = drawn.model.find("LossScale") != std::string::npos;
    const Dataset data = data_of(random, scaled);
    const Tensors single = train(kOneDevice + drawn.model, data);
    if (scaled) {  // the third step was skipped
      CHECK(single.at("rate and iterations").at(1) == kSteps - 1);
    }
    compare_tensors(train(drawn.distribution + drawn.model, data), single);
  }
}

// Of all cases, whether they are in the sample or not.
TEST_CASE("random optimizers: every optimizer of the catalogue is in one of the cases" *
          doctest::test_suite("host")) {
  std::string models;
  for (size_t seed = 0; seed < kCases; ++seed) {
    Random random(seed * 7919 + 3);
    models += random_case(random).model;
  }
  for (const std::string& name : class_names(Category::kOptimizer)) {
    CHECK_MESSAGE(models.find("{" + name + ": ") != std::string::npos, name);
  }
}

TEST_CASE("elementwise rules are one pass over each weight" * doctest::test_suite("host")) {
  const Dataset data =
      dataset_of(HostTensor(DType::kFloat64, {8, 6}), HostTensor(DType::kFloat64, {8, 5}));
  for (const std::string optimizer :
       {"{SGD: {weight_decay: 0.1}}", "{Adam: {weight_decay: 0.1}}",
        "{Adamax: {weight_decay: 0.1}}", "{Nadam: {weight_decay: 0.1}}",
        "{Adagrad: {weight_decay: 0.1}}", "{Adadelta: {weight_decay: 0.1}}",
        "{Lion: {weight_decay: 0.1}}",
        "{Ftrl: {weight_decay: 0.1, l1_regularization_strength: 0.1}}",
        "{ScheduleFreeAdamW: {weight_decay: 0.1, warmup_steps: 3}}"}) {
    CAPTURE(optimizer);
    const Config config = config_from(
        fmt::format("{}dtype_policy: float64\nmodel:\n  layers:\n    - Input: {{shape: [6]}}\n"
                    "    - Dense: {{name: d, units: 5}}\ncompile: {{loss: mse, optimizer: {}}}\n",
                    kOneDevice, optimizer));
    Engine engine(config, data_spec(data));
    int passes = 0;
    const Program& program = engine.train_program(8);
    for (const ProgramStep& step : program.steps) {
      const bool writes = std::any_of(step.outputs.begin(), step.outputs.end(), [&](int b) {
        return program.buffers[b].global_shape == Shape{6, 5};
      });
      passes += step.phase == Phase::kUpdate && writes ? 1 : 0;
    }
    CHECK(passes == 1);
  }
}
