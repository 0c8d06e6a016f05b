// Regularizers, constraints and the loss scale in whole training steps.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>

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

TEST_CASE("heads of keys that several devices have are penalized once") {
  std::vector<double> losses;
  for (const char* mesh : {"1,1", "2,2", "1,4", "2,4"}) {
    const Config config = config_from(R"(
dtype_policy: float64
model:
  layers:
    - Input: {shape: [3, 6]}
    - GroupQueryAttention: {head_dim: 2, num_query_heads: 4, num_key_value_heads: 2, activity_regularizer: {L2: 0.1}}
compile: {optimizer: {SGD: {learning_rate: 0.1}}, loss: mse}
distribution: {device_mesh: {shape: [1, 1], axis_names: [data, model]}, layout_map: megatron}
)",
                                      {std::string("distribution.device_mesh.shape=") + mesh});
    const Dataset data = dataset_of(signed_tensor(103, {4, 3, 6}), signed_tensor(104, {4, 3, 6}));
    Engine engine(config, data_spec(data));
    for (int step = 0; step < 2; ++step) {
      const std::vector<int64_t> rows = rows_of_step(0, 4, 4);
      engine.train_step(Batch{&data, rows});
    }
    losses.push_back(engine.last_loss());
    CHECK(losses.back() == doctest::Approx(losses[0]).epsilon(1e-12));
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

namespace {

constexpr const char* kNormModel = R"(
dtype_policy: float64
seed: 5
distribution:
  type: ModelParallel
  batch_dim_name: data
  device_mesh: {shape: [1, 1], axis_names: [data, model]}
  layout_map: {d1/kernel: [null, model], d2/kernel: [model, null]}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 8, activation: tanh}
    - Dense: {name: d2, units: 3}
compile: {loss: mse, optimizer: {SGD: {learning_rate: 0.1, momentum: 0.9, global_clipnorm: 0.05}}}
fit: {batch_size: 8}
)";

// Euclidean, over all weights; of the difference where there are others.
double norm_of(const std::map<std::string, HostTensor>& weights,
               const std::map<std::string, HostTensor>* others = nullptr) {
  double sum = 0;
  for (const auto& [path, weight] : weights) {
    for (int64_t i = 0; i < weight.size(); ++i) {
      const double value = weight.at(i) - (others == nullptr ? 0 : others->at(path).at(i));
      sum += value * value;
    }
  }
  return std::sqrt(sum);
}

struct NormRun {
  std::vector<double> losses;
  std::map<std::string, HostTensor> weights;
  Logs logs;
  double weight_norm = 0, update_ratio = 0;  // means of the steps, from the weights themselves
  bool has_validation = false;               // logs of a test have norms
  double first_change = 0;                   // norm of the first step
};

const double* log_named(const Logs& logs, std::string_view name) {
  for (const auto& [log, value] : logs) {
    if (log == name) {
      return &value;
    }
  }
  return nullptr;
}

NormRun run_with_norms(const std::vector<std::string>& overrides, int steps = 3) {
  const Config config = config_from(kNormModel, overrides);
  const Dataset data = dataset_of(signed_tensor(1, {24, 6}), signed_tensor(2, {24, 3}));
  Engine engine(config, data_spec(data), {});
  const auto weights = [&] {
    std::map<std::string, HostTensor> all;
    for (const std::string& path : engine.weight_paths()) {
      all.emplace(path, engine.read_variable(path));
    }
    return all;
  };
  NormRun run;
  run.weights = weights();
  for (int step = 0; step < steps; ++step) {
    engine.train_step({&data, rows_of_step(step, 8, 24)});
    run.losses.push_back(engine.last_loss());
    std::map<std::string, HostTensor> after = weights();
    run.first_change = step == 0 ? norm_of(after, &run.weights) : run.first_change;
    run.weight_norm += norm_of(run.weights) / steps;
    run.update_ratio += norm_of(after, &run.weights) / norm_of(run.weights) / steps;
    run.weights = std::move(after);
  }
  run.logs = engine.logs();
  engine.reset_metrics();
  engine.test_step({&data, rows_of_step(0, 8, 24)});
  run.has_validation = log_named(engine.logs(), "gradient_norm") != nullptr;
  return run;
}

double logged(const NormRun& run, const std::string& name) {
  const double* const value = log_named(run.logs, name);
  return value == nullptr ? -1 : *value;
}

}  // namespace

TEST_CASE("logged norms are those of the weights, alike on every mesh, and change no bit") {
  const NormRun one = run_with_norms({"run.log_norms=true"});
  CHECK(!one.has_validation);
  CHECK(logged(one, "weight_norm") == doctest::Approx(one.weight_norm).epsilon(1e-12));
  CHECK(logged(one, "update_ratio") == doctest::Approx(one.update_ratio).epsilon(1e-12));
  CHECK(logged(one, "gradient_norm") > 0.05);  // before the clipping
  // Plain gradient descent moves by the rate times the gradient; a scaled loss has the same one.
  for (const char* optimizer :
       {"{SGD: {learning_rate: 0.1}}", "{SGD: {learning_rate: 0.1, loss_scale_factor: 3}}",
        "{LossScaleOptimizer: {inner_optimizer: {SGD: {learning_rate: 0.1}}, initial_scale: "
        "1024}}"}) {
    CAPTURE(optimizer);
    const NormRun plain =
        run_with_norms({"run.log_norms=true", std::string("compile.optimizer=") + optimizer}, 1);
    CHECK(logged(plain, "gradient_norm") ==
          doctest::Approx(plain.first_change / 0.1).epsilon(1e-12));
  }
  for (const auto& [shape, zero] :
       {std::pair{"1,1", "0"}, {"2,1", "0"}, {"2,2", "0"}, {"4,1", "2"}, {"2,4", "3"}}) {
    CAPTURE(shape);
    std::vector<std::string> words = {std::string("distribution.device_mesh.shape=") + shape,
                                      std::string("distribution.zero=") + zero};
    const NormRun off = run_with_norms(words);
    CHECK(logged(off, "gradient_norm") == -1);
    words.emplace_back("run.log_norms=true");
    const NormRun on = run_with_norms(words);
    CHECK(on.losses == off.losses);
    for (const auto& [path, weight] : on.weights) {
      CAPTURE(path);
      CHECK(std::memcmp(weight.bytes(), off.weights.at(path).bytes(), weight.num_bytes()) == 0);
    }
    for (const char* name : {"gradient_norm", "weight_norm", "update_ratio"}) {
      CAPTURE(name);
      CHECK(logged(on, name) == doctest::Approx(logged(one, name)).epsilon(1e-9));
    }
  }
}
