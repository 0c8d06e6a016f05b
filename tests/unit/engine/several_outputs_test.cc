// Two inputs, two outputs, a loss and metrics each, sample weights, a Normalization adapted to the
// data: two epochs give what Keras 3 on JAX gives for the same model, start and data.
//
//   n = Normalization(); n.adapt(xa); c = Concatenate()([n(a), b])
//   out_a = Dense(3, "softmax", kernel 0.1)(c); out_b = Dense(1, kernel 0.2)(c)
//   compile(SGD(0.01), {out_a: sparse_categorical_crossentropy, out_b: mse}, loss_weights 0.3 and
//   2,
//           metrics {out_a: [accuracy], out_b: [mae, R2Score()]}, weighted_metrics {out_b: [mae]})
//   fit(shuffle=False, batch_size=8, epochs=2, sample_weight={out_a: w, out_b: w})
//   xa = 3 signed(1) + 1, xb = signed(2), ya = below(3, 3), yb = unit(4), w = unit(5); 20 samples
#include <doctest/doctest.h>

#include <cmath>

#include "engine/adapt.h"
#include "support/engine_case.h"
#include "support/splitmix.h"
#include "train/trainer.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kSamples = 20;
constexpr const char* kModel = R"(
model:
  layers:
    - Input: {name: a, shape: [4]}
    - Input: {name: b, shape: [2]}
    - Normalization: {name: na, inputs: a}
    - Concatenate: {name: c, inputs: [na, b]}
    - Dense: {name: out_a, units: 3, activation: softmax, inputs: c, kernel_initializer: {Constant: 0.1}}
    - Dense: {name: out_b, units: 1, inputs: c, kernel_initializer: {Constant: 0.2}}
  outputs: [out_a, out_b]
compile:
  optimizer: {SGD: 0.01}
  loss: {out_b: mse, out_a: sparse_categorical_crossentropy}
  loss_weights: [0.3, 2]
  metrics: {out_a: [accuracy], out_b: [mae, R2Score]}
  weighted_metrics: {out_b: [mae]}
data: {shuffle: false}
fit: {batch_size: 8, epochs: 2}
)";

template <class F>
RowsPtr filled(DType dtype, const Shape& shape, F&& value) {
  HostTensor out(dtype, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, value(static_cast<uint64_t>(i)));
  }
  return make_rows(std::move(out));
}

Dataset data() {
  Dataset out;
  out.description = "test data";
  out.num_samples = kSamples;
  out.inputs.push_back({"a", filled(DType::kFloat32, {kSamples, 4},
                                    [](uint64_t i) { return 3 * splitmix_signed(1, i, 1) + 1; })});
  out.inputs.push_back({"b", filled(DType::kFloat32, {kSamples, 2},
                                    [](uint64_t i) { return splitmix_signed(2, i, 1); })});
  out.targets.push_back({"out_a", filled(DType::kInt32, {kSamples}, [](uint64_t i) {
                           return static_cast<double>(splitmix_below(3, i, 3));
                         })});
  out.targets.push_back({"out_b", filled(DType::kFloat32, {kSamples, 1},
                                         [](uint64_t i) { return splitmix_unit(4, i); })});
  out.sample_weight =
      filled(DType::kFloat32, {kSamples}, [](uint64_t i) { return splitmix_unit(5, i); });
  return out;
}

struct LastEpoch : Hook {
  Logs logs;
  void on_epoch_end(EpochReport& report) override { logs = report.logs; }
};

Logs train(const std::string& distribution, const std::vector<std::string>& overrides = {}) {
  const Config config = config_from(kModel + distribution, overrides);
  const Dataset dataset = data();
  Engine engine(config, data_spec(dataset));
  adapt_to_data(engine.model(), dataset, engine);
  Trainer trainer(engine, config, [] { return 0.0; });
  LastEpoch last;
  trainer.add_hook(last);
  trainer.fit(dataset, nullptr);
  return last.logs;
}

// The last epoch's values of Keras 3.15.1 on JAX.
const Logs kKeras = {{"loss", 0.76465428},
                     {"out_a_accuracy", 0.5},
                     {"out_a_loss", 0.56378251},
                     {"out_b_loss", 0.29775977},
                     {"out_b_mae", 0.6140815},
                     {"out_b_r2_score", -8.5195198},
                     {"out_b_weighted_mae", 0.63739663}};

void check_logs(const Logs& logs) {
  REQUIRE(logs.size() == kKeras.size());
  for (size_t i = 0; i < logs.size(); ++i) {
    CAPTURE(logs[i].first);
    CHECK(logs[i].first == kKeras[i].first);
    CHECK(logs[i].second == doctest::Approx(kKeras[i].second).epsilon(2e-5));
  }
}

TEST_CASE("losses, weights and metrics of several outputs are Keras' on every mesh") {
  check_logs(train("distribution: {device_mesh: {shape: [1]}}\n"));
  check_logs(train("distribution: {device_mesh: {shape: [4]}}\n"));
  check_logs(
      train("distribution:\n  type: ModelParallel\n  device_mesh: {shape: [2, 2]}\n  layout_map:\n"
            "    out_b/kernel: [model, null]\n"));
}

TEST_CASE("metrics in the order of the outputs are those by name") {
  check_logs(train("", {"compile.metrics=[[accuracy], [mae, R2Score]]",
                        "compile.weighted_metrics=[null, mae]"}));
  check_logs(train("", {"compile.metrics=[accuracy, [mae, R2Score]]",
                        "compile.loss=[sparse_categorical_crossentropy, mse]"}));
}

TEST_CASE("Normalization adapts to mean and population variance of the training data") {
  const Config config = config_from(kModel);
  const Dataset dataset = data();
  Engine engine(config, data_spec(dataset));
  adapt_to_data(engine.model(), dataset, engine);
  const HostTensor x = whole(dataset.inputs[0].rows);
  const HostTensor mean = engine.read_variable("na/mean");
  const HostTensor variance = engine.read_variable("na/variance");
  CHECK(engine.read_variable("na/count").at(0) == kSamples);
  for (int64_t f = 0; f < 4; ++f) {
    double sum = 0, squares = 0;
    for (int64_t s = 0; s < kSamples; ++s) {
      sum += x.at(s * 4 + f);
      squares += x.at(s * 4 + f) * x.at(s * 4 + f);
    }
    CHECK(mean.at(f) == doctest::Approx(sum / kSamples).epsilon(1e-6));
    CHECK(variance.at(f) ==
          doctest::Approx(squares / kSamples - sum * sum / kSamples / kSamples).epsilon(1e-6));
  }
}

TEST_CASE("statistics behind Rescaling are those of the rescaled data") {
  const Config config = config_from(
      "model:\n  layers:\n    - Input: {shape: [3, 2]}\n    - Rescaling: {scale: 0.5, offset: 1}\n"
      "    - Rescaling: {scale: [2, 4], offset: [0, -3]}\n    - Normalization: {name: n}\n"
      "    - Flatten\n    - Dense: {units: 1}\ncompile: {loss: mse}\n");
  const Dataset dataset =
      dataset_of(whole(filled(DType::kUInt8, {4, 3, 2}, [](uint64_t i) { return double(i); })),
                 HostTensor(DType::kFloat32, {4, 1}));
  Engine engine(config, data_spec(dataset));
  adapt_to_data(engine.model(), dataset, engine);
  const HostTensor mean = engine.read_variable("n/mean");
  const HostTensor variance = engine.read_variable("n/variance");
  // Channel 0 holds 0, 2 .. 22, channel 1 holds 1, 3 .. 23: variance 143 / 3.
  CHECK(mean.at(0) == doctest::Approx((11 * 0.5 + 1) * 2));
  CHECK(mean.at(1) == doctest::Approx((12 * 0.5 + 1) * 4 - 3));
  CHECK(variance.at(0) == doctest::Approx(143 / 3.0));
  CHECK(variance.at(1) == doctest::Approx(143 / 3.0 * 4));
}

TEST_CASE("one mean for all positions and one for each of two axes") {
  for (const auto& [axis, shape] :
       {std::pair<const char*, Shape>{"null", {}}, {"[1, 2]", {3, 2}}}) {
    const Config config = config_from(fmt::format(
        "model:\n  layers:\n    - Input: {{shape: [3, 2]}}\n    - Normalization: {{name: "
        "n, axis: {}}}\n    - Flatten\n    - Dense: {{units: 1}}\ncompile: {{loss: mse}}\n",
        axis));
    const Dataset dataset =
        dataset_of(whole(filled(DType::kUInt8, {4, 3, 2}, [](uint64_t i) { return double(i); })),
                   HostTensor(DType::kFloat32, {4, 1}));
    Engine engine(config, data_spec(dataset));
    adapt_to_data(engine.model(), dataset, engine);
    const HostTensor mean = engine.read_variable("n/mean");
    CHECK(mean.shape() == shape);
    CHECK(mean.at(0) == doctest::Approx(shape.empty() ? 11.5 : 9));
    CHECK(engine.read_variable("n/variance").at(0) ==
          doctest::Approx(shape.empty() ? (24 * 24 - 1) / 12.0 : 45));
  }
}

}  // namespace
