// Training with dtype policies of 16 bits, step by step beside Keras 3 on JAX, and on meshes.
// tests/reference/README.md says how the numbers were made.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/engine_case.h"
#include "support/golden_json.h"
#include "support/instrumented.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

using Json = nlohmann::json;

constexpr int64_t kSamples = 640, kPixels = 144;

const Json& golden() {
  static const Json json = golden_json("parity/mixed");
  return json;
}

const Json& run_of(const std::string& model, const std::string& optimizer,
                   const std::string& policy) {
  for (const Json& run : golden()["runs"]) {
    if (run["model"] == model && run["optimizer"] == optimizer && run["policy"] == policy) {
      return run;
    }
  }
  throw std::runtime_error("no golden run of " + model + " " + optimizer + " " + policy);
}

Dataset data_of(const std::string& model) {
  const bool is_image = model == "convnet";
  HostTensor x(DType::kFloat32, is_image ? Shape{kSamples, 12, 12, 1} : Shape{kSamples, kPixels});
  HostTensor y(DType::kInt32, {kSamples});
  for (int64_t s = 0; s < kSamples; ++s) {
    y.data<int32_t>()[s] = static_cast<int32_t>(s % 10);
    for (int64_t j = 0; j < kPixels; ++j) {
      x.data<float>()[s * kPixels + j] =
          splitmix_signed(401, static_cast<uint64_t>(s % 10 * kPixels + j)) +
          0.5F * splitmix_signed(402, static_cast<uint64_t>(s * kPixels + j));
    }
  }
  return dataset_of(std::move(x), std::move(y));
}

std::string yaml_of(const std::string& model, const std::string& optimizer) {
  return R"(
model:
  layers:
)" +
         std::string(model == "mlp" ? R"(
    - Input: {shape: [144]}
    - Dense: {name: d1, units: 64, activation: relu}
    - Dense: {name: d2, units: 64, activation: tanh}
    - Dense: {name: d3, units: 10, dtype: float32}
)"
                                    : R"(
    - Input: {shape: [12, 12, 1]}
    - Conv2D: {name: c1, filters: 8, kernel_size: 3, activation: relu}
    - BatchNormalization: {name: bn}
    - MaxPooling2D: 2
    - Conv2D: {name: c2, filters: 16, kernel_size: 3, padding: same, use_bias: false}
    - LayerNormalization: {name: ln}
    - ReLU
    - GlobalAveragePooling2D
    - Dense: {name: d1, units: 10, dtype: float32}
)") + R"(
compile:
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  optimizer: )" +
         optimizer + "\nfit: {batch_size: 64}\n";
}

std::string optimizer_text(const Json& run) {
  if (run["optimizer"] == "adam") {
    return "{Adam: {learning_rate: 2.0e-3}}";
  }
  if (run["optimizer"] == "sgd") {
    return "{SGD: {learning_rate: 0.05, momentum: 0.9}}";
  }
  const std::string inner = run["optimizer"] == "scaled_accumulating_sgd"
                                ? "momentum: 0.9, gradient_accumulation_steps: 3, "
                                : "";
  return "{LossScaleOptimizer: {inner_optimizer: {SGD: {" + inner +
         "learning_rate: 0.05}}, initial_scale: " + run["scale"]["initial_scale"].dump() +
         ", dynamic_growth_steps: " + run["scale"]["dynamic_growth_steps"].dump() + "}}";
}

// An engine of a golden run with its initial weights.
struct Training {
  Config config;
  Engine engine;

  Training(const Json& run, const Dataset& data, std::vector<std::string> overrides = {})
      : config(make_config(run, std::move(overrides))), engine(config, data_spec(data)) {
    for (const auto& [path, spec] : run["initial_weights"].items()) {
      HostTensor value(DType::kFloat32, spec["shape"].get<Shape>());
      for (int64_t i = 0; i < value.size(); ++i) {
        value.data<float>()[i] =
            splitmix_signed(spec["seed"].get<uint64_t>(), static_cast<uint64_t>(i), spec["scale"]);
      }
      engine.write_variable(path, value);
    }
  }

  static Config make_config(const Json& run, std::vector<std::string> overrides) {
    overrides.push_back("dtype_policy=" + run["policy"].get<std::string>());
    return config_from(yaml_of(run["model"].get<std::string>(), optimizer_text(run)), overrides);
  }
};

double train_step(Engine& engine, const Dataset& data, size_t step) {
  engine.train_step({&data, rows_of_step(static_cast<int64_t>(step), 64, kSamples)});
  return engine.last_loss();
}

size_t steps_of(const Json& run) {
  return kIsInstrumented ? run["losses"].size() / 5 : run["losses"].size();
}

// Relative to the loss, or to a tenth where it is smaller.
double difference(double loss, double expected) {
  return std::abs(loss - expected) / std::max(expected, 0.1);
}

void compare(const std::string& model, const std::string& optimizer, const std::string& policy,
             double bound) {
  CAPTURE(model);
  CAPTURE(optimizer);
  CAPTURE(policy);
  const Json& run = run_of(model, optimizer, policy);
  const Dataset data = data_of(model);
  Training training(run, data);
  Engine& engine = training.engine;
  const auto losses = run["losses"].get<std::vector<double>>();
  double worst = 0;
  for (size_t step = 0; step < steps_of(run); ++step) {
    const double loss = train_step(engine, data, step);
    const double off = difference(loss, losses[step]);
    CHECK_MESSAGE(off <= bound, "step ", step, ": ", loss, " against ", losses[step],
                  ", relative difference ", off);
    worst = std::max(worst, off);
    if (run.contains("scales")) {
      const Json& scales = run["scales"][step];
      CHECK(engine.read_variable("loss_scale_optimizer/dynamic_scale").at(0) ==
            scales[0].get<double>());
      CHECK(engine.read_variable("loss_scale_optimizer/step_counter").at(0) ==
            scales[1].get<double>());
      CHECK(engine.iterations() == scales[2].get<int64_t>());
    }
  }
  MESSAGE(model << " " << optimizer << " " << policy << ": largest relative difference of a loss "
                << worst);
}

// Every mesh beside one device: the same loss but for rounding.
void compare_meshes(const std::string& model, const std::string& policy) {
  const std::string columns =
      model == "mlp" ? "'d[12]/kernel': [null, model]" : "'c./kernel': [null, null, null, model]";
  const Json& run = run_of(model, "adam", policy);
  const Dataset data = data_of(model);
  std::vector<double> losses;
  Training one(run, data);
  for (size_t step = 0; step < steps_of(run); ++step) {
    losses.push_back(train_step(one.engine, data, step));
  }
  for (const std::string& mesh :
       {std::string("{type: DataParallel, device_mesh: {shape: [8]}}"),
        std::string("{type: DataParallel, device_mesh: {shape: [4]}, zero: 3}"),
        "{type: ModelParallel, batch_dim_name: data, device_mesh: {shape: [2, 4], axis_names: "
        "[data, model]}, layout_map: {" +
            columns + "}}"}) {
    CAPTURE(mesh);
    Training training(run, data, {"distribution=" + mesh});
    double worst = 0;
    for (size_t step = 0; step < losses.size(); ++step) {
      worst = std::max(worst, difference(train_step(training.engine, data, step), losses[step]));
    }
    CHECK(worst <= 5e-3);
    MESSAGE(model << " " << policy << " on " << mesh << ": " << worst);
  }
}

}  // namespace

TEST_CASE("mixed_bfloat16 trains as Keras does") {
  compare("mlp", "adam", "mixed_bfloat16", 5e-3);
  compare("convnet", "adam", "mixed_bfloat16", 5e-3);
}

TEST_CASE("mixed_float16 trains as Keras does with the loss scale that comes by itself") {
  compare("mlp", "adam", "mixed_float16", 2e-3);
  compare("convnet", "adam", "mixed_float16", 2e-3);
}

TEST_CASE("weights of 16 bits train as Keras' do") {
  compare("mlp", "sgd", "bfloat16", 2e-2);
  compare("mlp", "sgd", "float16", 2e-2);
}

// Keras has 1 for 0.999 there, and a step of 0: its bfloat16 weights stay where they are.
TEST_CASE("weights of bfloat16 move under Adam") {
  Json run = run_of("mlp", "adam", "mixed_bfloat16");
  run["policy"] = "bfloat16";
  const Dataset data = data_of("mlp");
  Training training(run, data);
  const HostTensor before = training.engine.read_variable("d1/kernel");
  CHECK(before.dtype() == DType::kBFloat16);
  for (size_t step = 0; step < 10; ++step)
    train_step(training.engine, data, step);
  const HostTensor after = training.engine.read_variable("d1/kernel");
  int64_t moved = 0;
  for (int64_t i = 0; i < before.size(); ++i)
    moved += before.at(i) != after.at(i);
  CHECK(moved > before.size() / 2);
  CHECK(training.engine.last_loss() < 2);
}

// Kernel cells that meet nothing but padding: what oneDNN does not write was taken for their
// gradient.
TEST_CASE("cells of a kernel that meet only padding have no gradient in 16 bits") {
  struct Case {
    Shape input;
    std::string shape, layer;
    int64_t idle;  // so many weights at the kernel's end
  };
  for (const Case& c :
       {Case{{60, 2, 12},
             "[2, 12]",
             "Conv1D: {name: c, filters: 4, kernel_size: 3, strides: 3, padding: same}",
             12 * 4},
        Case{{60, 1, 1, 24},
             "[1, 1, 24]",
             "Conv2D: {name: c, filters: 16, kernel_size: [1, 2], strides: 2, padding: same}",
             24 * 16}}) {
    CAPTURE(c.layer);
    for (const char* policy : {"mixed_bfloat16", "bfloat16"}) {
      const Config config =
          config_from(std::string("model:\n  layers:\n    - Input: {shape: ") + c.shape +
                          "}\n    - " + c.layer +
                          "\n    - Flatten\n    - Dense: {name: o, units: 4}\n"
                          "compile: {optimizer: {SGD: {learning_rate: 0.05}}, loss: mse}\n"
                          "fit: {batch_size: 12}\nseed: 3\n",
                      {std::string("dtype_policy=") + policy});
      HostTensor x(DType::kFloat32, c.input);
      HostTensor y(DType::kFloat32, {60, 4});
      for (int64_t i = 0; i < x.size(); ++i)
        x.data<float>()[i] = splitmix_signed(501, static_cast<uint64_t>(i));
      const Dataset data = dataset_of(std::move(x), std::move(y));
      Engine engine(config, data_spec(data));
      const HostTensor before = engine.read_variable("c/kernel");
      for (int64_t step = 0; step < 5; ++step) {
        const std::vector<int64_t> rows = rows_of_step(step, 12, data.num_samples);
        engine.train_step({&data, rows});
      }
      const HostTensor after = engine.read_variable("c/kernel");
      bool has_moved = false;
      int64_t wrong = 0;
      for (int64_t i = 0; i < after.size(); ++i) {
        const bool differs = after.at(i) != before.at(i);
        has_moved = has_moved || differs;
        wrong += differs && i >= after.size() - c.idle;
      }
      CHECK(has_moved);
      CHECK(wrong == 0);
    }
  }
}

// Their sums are beyond 65504, the largest float16.
TEST_CASE("means of float16 are finite where their sums are not") {
  HostTensor x(DType::kFloat32, {4, 56, 56, 2});
  HostTensor y(DType::kFloat32, {4, 2});
  std::fill_n(x.data<float>(), x.size(), 25.0F);
  std::fill_n(y.data<float>(), y.size(), -25.0F);
  const Dataset data = dataset_of(std::move(x), std::move(y));
  const std::vector<std::string> halves = {"mixed_float16", "mixed_bfloat16"};
  for (const char* layers :
       {"- GlobalAveragePooling2D", "- RandomContrast: {factor: 0.5}\n    - GlobalAveragePooling2D",
        "- Reshape: {target_shape: [3136, 2]}\n    - AdaptiveAveragePooling1D: 1\n    - Flatten"}) {
    for (const std::string& policy : halves) {
      CAPTURE(layers);
      CAPTURE(policy);
      const Config config = config_from(
          "model:\n  layers:\n    - Input: {shape: [56, 56, 2]}\n    " + std::string(layers) +
              "\ncompile: {optimizer: {SGD: {learning_rate: 0.0}}, loss: mse, "
              "auto_scale_loss: false}\nfit: {batch_size: 4}\n",
          {"dtype_policy=" + policy});
      Engine engine(config, data_spec(data));
      engine.train_step({&data, rows_of_step(0, 4, 4)});
      // Sums of bfloat16 are rounded, to 1 of 512.
      CHECK(std::abs(engine.last_loss() - 2500) <= (policy == halves[0] ? 0 : 5));
    }
  }
}

TEST_CASE("a loss scale that is too large is halved step by step and grows again as Keras' does") {
  compare("mlp", "scaled_sgd", "mixed_float16", 2e-3);
  compare("convnet", "scaled_sgd", "mixed_float16", 2e-3);
}

TEST_CASE("gradients accumulate under a loss scale as Keras' do and skipped steps add none") {
  compare("mlp", "scaled_accumulating_sgd", "mixed_float16", 2e-3);
}

// Gradients of some 1e-10 are nothing in float16 unless the loss is multiplied first.
TEST_CASE("loss_scale_factor keeps small gradients from vanishing in float16") {
  const Dataset data = data_of("mlp");
  const auto moved = [&](const std::string& policy, const std::string& factor) {
    Json run = run_of("mlp", "sgd", "float16");
    run["policy"] = policy;
    Training training(run, data,
                      {"compile.optimizer={SGD: {learning_rate: 1.0e+6" + factor + "}}",
                       "compile.auto_scale_loss=false", "compile.loss_weights=1.0e-8"});
    const HostTensor before = training.engine.read_variable("d1/kernel");
    train_step(training.engine, data, 0);
    const HostTensor after = training.engine.read_variable("d1/kernel");
    std::vector<double> out;
    for (int64_t i = 0; i < before.size(); ++i) {
      out.push_back(after.at(i) - before.at(i));
    }
    return out;
  };
  const auto largest = [](const std::vector<double>& values) {
    double out = 0;
    for (const double value : values)
      out = std::max(out, std::abs(value));
    return out;
  };
  const std::vector<double> wanted = moved("float32", "");
  CHECK(moved("float32", ", loss_scale_factor: 1048576") == wanted);  // a power of two
  CHECK(largest(moved("mixed_float16", "")) < largest(wanted) / 10);
  std::vector<double> found = moved("mixed_float16", ", loss_scale_factor: 1048576");
  CHECK(largest(found) > largest(wanted) / 2);
  for (size_t i = 0; i < found.size(); ++i)
    found[i] -= wanted[i];
  CHECK(largest(found) < largest(wanted) / 20);
}

TEST_CASE("auto_scale_loss: false leaves the optimizer as it is") {
  const Json& run = run_of("mlp", "adam", "mixed_float16");
  const Config config = Training::make_config(run, {"compile.auto_scale_loss=false"});
  CHECK(config.compile.optimizer.class_name == "Adam");
  CHECK(Training::make_config(run, {}).compile.optimizer.class_name == "LossScaleOptimizer");
}

TEST_CASE("16 bits give the same losses on every mesh but for rounding") {
  compare_meshes("mlp", "mixed_bfloat16");
  compare_meshes("convnet", "mixed_bfloat16");
  compare_meshes("mlp", "mixed_float16");
}

TEST_CASE("dtype_policy_map: keys match layers as a whole, and a layer's own dtype wins") {
  const Json& run = run_of("mlp", "adam", "mixed_bfloat16");
  const Config config =
      Training::make_config(run, {"dtype_policy_map={'d.': float16, d2: mixed_float16}"});
  Diagnostics diagnostics;
  const Model model(config.model, dtype_policy(config.dtype_policy.value), diagnostics);
  REQUIRE(model.layers().size() == 3);
  CHECK(model.layers()[0]->dtype == DType::kFloat16);
  CHECK(model.layers()[0]->variable_dtype == DType::kFloat16);
  CHECK(model.layers()[1]->dtype == DType::kFloat16);
  CHECK(model.layers()[1]->variable_dtype == DType::kFloat32);
  CHECK(model.layers()[2]->dtype == DType::kFloat32);
}
