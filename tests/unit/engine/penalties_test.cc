// Regularizers, constraints and the loss scale in whole training steps.
#include <doctest/doctest.h>

#include <cmath>

#include "support/engine_case.h"
#include "support/golden_json.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

HostTensor signed_tensor(uint64_t seed, const Shape& shape) {
  HostTensor out(DType::kFloat64, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, splitmix_signed(seed, static_cast<uint64_t>(i)));
  }
  return out;
}

// tests/reference/optimizers.py: penalized_model.
constexpr const char* kModel = R"(
dtype_policy: float64
distribution:
  type: ModelParallel
  batch_dim_name: data
  device_mesh: {shape: [1, 1], axis_names: [data, model]}
  layout_map: {d1/kernel: [null, model], d1/output: [data, model]}
model:
  layers:
    - Input: {shape: [6]}
    - Dense:
        name: d1
        units: 4
        activation: tanh
        kernel_regularizer: {L2: 0.02}
        bias_regularizer: l1
        kernel_constraint: {MaxNorm: 0.8}
        activity_regularizer: {L1L2: {l1: 0.01, l2: 0.02}}
    - Dense:
        name: d2
        units: 3
        kernel_regularizer: {OrthogonalRegularizer: {factor: 0.1, mode: columns}}
        kernel_constraint: {MinMaxNorm: {min_value: 0.2, max_value: 0.6, rate: 0.5, axis: 1}}
        bias_constraint: non_neg
        activity_regularizer: l2
compile: {loss: mse, optimizer: {SGD: {learning_rate: 0.1, momentum: 0.9}}}
fit: {batch_size: 8}
)";

double logged_loss(const Engine& engine) {
  for (const auto& [name, value] : engine.logs()) {
    if (name == "loss") {
      return value;
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("penalties and constraints: losses and weights are Keras' on every mesh") {
  const nlohmann::json golden = golden_json("keras/penalties")["model"];
  for (const auto& [shape, zero] :
       {std::pair{"1,1", "0"}, {"2,2", "0"}, {"4,1", "2"}, {"2,4", "3"}}) {
    CAPTURE(shape);
    const Config config =
        config_from(kModel, {std::string("distribution.device_mesh.shape=") + shape,
                             std::string("distribution.zero=") + zero});
    const Dataset data = dataset_of(signed_tensor(101, {8, 6}), signed_tensor(102, {8, 3}));
    Engine engine(config, data_spec(data));
    uint64_t seed = 0;
    for (const std::string& path : engine.weight_paths()) {
      engine.write_variable(path, signed_tensor(++seed, engine.read_variable(path).shape()));
    }
    const std::vector<int64_t> rows = rows_of_step(0, 8, 8);
    const Batch batch{&data, rows};
    engine.test_step(batch);
    // Keras takes the mean of mse in float32.
    CHECK(logged_loss(engine) ==
          doctest::Approx(golden["loss_before"].get<double>()).epsilon(1e-6));
    for (const double expected : golden["losses"].get<std::vector<double>>()) {
      engine.reset_metrics();
      engine.train_step(batch);
      CHECK(engine.last_loss() == doctest::Approx(expected).epsilon(1e-6));
      CHECK(logged_loss(engine) == doctest::Approx(engine.last_loss()).epsilon(1e-12));
    }
    for (const auto& [path, expected] : golden["weights"].items()) {
      CAPTURE(path);
      const HostTensor found = engine.read_variable(path);
      const auto values = expected["values"].get<std::vector<double>>();
      REQUIRE(found.size() == static_cast<int64_t>(values.size()));
      for (int64_t i = 0; i < found.size(); ++i) {
        CHECK(std::abs(found.at(i) - values[static_cast<size_t>(i)]) <= 2e-6);
      }
    }
  }
}

TEST_CASE("ActivityRegularization penalizes as the argument of the layer before it") {
  std::string separate = kModel;
  const std::string argument = "        activity_regularizer: {L1L2: {l1: 0.01, l2: 0.02}}\n";
  separate.replace(separate.find(argument), argument.size(),
                   "    - ActivityRegularization: {l1: 0.01, l2: 0.02}\n");
  const nlohmann::json golden = golden_json("keras/penalties")["model"];
  const Config config = config_from(separate, {"distribution.device_mesh.shape=2,2"});
  const Dataset data = dataset_of(signed_tensor(101, {8, 6}), signed_tensor(102, {8, 3}));
  Engine engine(config, data_spec(data));
  uint64_t seed = 0;
  for (const std::string& path : engine.weight_paths()) {
    engine.write_variable(path, signed_tensor(++seed, engine.read_variable(path).shape()));
  }
  const std::vector<int64_t> rows = rows_of_step(0, 8, 8);
  for (const double expected : golden["losses"].get<std::vector<double>>()) {
    engine.train_step(Batch{&data, rows});
    CHECK(engine.last_loss() == doctest::Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("loss scale: steps that overflow change nothing but the scale until it fits") {
  const Config config = config_from(
      kModel, {"distribution.device_mesh.shape=2,2",
               "compile.optimizer={LossScaleOptimizer: {inner_optimizer: {Adam: {learning_rate: "
               "{ExponentialDecay: {initial_learning_rate: 0.1, decay_steps: 1, decay_rate: "
               "0.5}}}}, initial_scale: 8.0e+307, dynamic_growth_steps: 3}}"});
  Dataset data = dataset_of(signed_tensor(101, {8, 6}), signed_tensor(102, {8, 3}));
  HostTensor four_times = whole(data.inputs[0].rows);
  for (int64_t i = 0; i < four_times.size(); ++i) {
    four_times.set(i, 4 * four_times.at(i));
  }
  data.inputs[0].rows = make_rows(std::move(four_times));
  Engine engine(config, data_spec(data));
  const std::vector<int64_t> rows = rows_of_step(0, 8, 8);
  const Batch batch{&data, rows};
  const double scale = engine.read_variable("loss_scale_optimizer/dynamic_scale").at(0);
  CHECK(scale == 8.0e307);
  HostTensor far(DType::kFloat64, {3});
  for (int64_t i = 0; i < 3; ++i) {
    far.set(i, 1000);
  }
  engine.write_variable("d2/bias", far);
  const HostTensor before = engine.read_variable("d1/kernel");
  int64_t skipped = 0;
  while (engine.iterations() == 0 && skipped < 100) {
    const HostTensor kernel = engine.read_variable("d1/kernel");
    CHECK(std::equal(kernel.bytes(), kernel.bytes() + kernel.num_bytes(), before.bytes()));
    CHECK(engine.learning_rate() == 0.1);
    CHECK(engine.read_variable("adam/iteration").at(0) == 0);
    engine.train_step(batch);
    skipped += engine.iterations() == 0 ? 1 : 0;
  }
  CHECK(skipped > 3);
  CHECK(skipped < 40);
  CHECK(engine.iterations() == 1);
  CHECK(engine.learning_rate() == 0.05);
  CHECK(engine.read_variable("loss_scale_optimizer/step_counter").at(0) == 1);
  CHECK(engine.read_variable("loss_scale_optimizer/iteration").at(0) ==
        static_cast<double>(skipped + 1));
  const double final_scale = engine.read_variable("loss_scale_optimizer/dynamic_scale").at(0);
  CHECK(final_scale == std::ldexp(scale, -static_cast<int>(skipped)));
  CHECK(std::isfinite(engine.read_variable("d1/kernel").at(0)));
}
