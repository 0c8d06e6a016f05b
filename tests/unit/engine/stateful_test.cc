// Stateful recurrent layers: a batch begins with the states that the one before it left, on every
// mesh, in training, evaluation and prediction.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/state_batches.h"
#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kBatch = 4, kStepsOfPart = 2, kParts = 3, kFeatures = 3;

const char* const kLayers[] = {
    "LSTM: {name: r, units: 4, return_sequences: true, stateful: STATEFUL}",
    "RNN: {name: r, cell: [{GRUCell: 3}, {LSTMCell: 4}], return_sequences: true, stateful: "
    "STATEFUL}",
};

Config config_of_layer(std::string layer, bool is_stateful, int64_t steps,
                       const std::string& mesh) {
  const std::string word = "STATEFUL";
  layer.replace(layer.find(word), word.size(), is_stateful ? "true" : "false");
  return config_from(fmt::format(R"(
dtype_policy: float64
model:
  layers:
    - Input: {{shape: [{}, {}]{}}}
    - {}
compile: {{optimizer: sgd, loss: mse}}
fit: {{batch_size: {}}}
distribution: {{device_mesh: {{shape: {}, axis_names: [data, model]}}}}
)",
                                 steps, kFeatures, is_stateful ? ", batch_size: 4" : "", layer,
                                 kBatch, mesh));
}

HostTensor signed_tensor(uint64_t seed, Shape shape) {
  HostTensor out(DType::kFloat64, std::move(shape));
  for (int64_t i = 0; i < out.size(); ++i)
    out.set(i, splitmix_signed(seed, static_cast<uint64_t>(i)));
  return out;
}

// Sequences of kParts * kStepsOfPart, whole; and cut into parts, the first part of all sequences
// first.
HostTensor whole_sequences(uint64_t seed, int64_t features) {
  return signed_tensor(seed, {kBatch, kParts * kStepsOfPart, features});
}
HostTensor parts_of(const HostTensor& whole) {
  const int64_t features = whole.shape()[2];
  HostTensor out(DType::kFloat64, {kParts * kBatch, kStepsOfPart, features});
  for (int64_t i = 0; i < whole.size(); ++i) {
    const int64_t feature = i % features, step = i / features % (kParts * kStepsOfPart),
                  sample = i / features / (kParts * kStepsOfPart);
    const int64_t row = step / kStepsOfPart * kBatch + sample;
    out.set((row * kStepsOfPart + step % kStepsOfPart) * features + feature, whole.at(i));
  }
  return out;
}

Dataset part_data() {
  return dataset_of(parts_of(whole_sequences(1, kFeatures)), parts_of(whole_sequences(2, 4)));
}

double difference(const HostTensor& a, const HostTensor& b) {
  REQUIRE(a.shape() == b.shape());
  double out = 0;
  for (int64_t i = 0; i < a.size(); ++i)
    out = std::max(out, std::abs(a.at(i) - b.at(i)));
  return out;
}

// Predictions of all parts in their order, as one tensor.
HostTensor predict_parts(Engine& engine, const Dataset& data) {
  HostTensor out(DType::kFloat64, {kParts * kBatch, kStepsOfPart, 4});
  for (int64_t part = 0; part < kParts; ++part) {
    const HostTensor y =
        std::move(engine.predict_step({&data, rows_of_step(part, kBatch, kParts * kBatch)})[0]);
    for (int64_t i = 0; i < y.size(); ++i)
      out.set(part * y.size() + i, y.at(i));
  }
  return out;
}

void reset(Engine& engine) {
  for (const std::string& path : engine.weight_paths()) {
    if (path.find("rnn_state") != std::string::npos)
      engine.write_variable(path, HostTensor(DType::kFloat64, engine.read_variable(path).shape()));
  }
}

}  // namespace

TEST_CASE("a stateful layer sees the parts of a sequence as the whole sequence") {
  for (const char* layer : kLayers) {
    const Dataset whole = dataset_of(whole_sequences(1, kFeatures), whole_sequences(2, 4));
    const Config stateless = config_of_layer(layer, false, kParts * kStepsOfPart, "[1, 1]");
    Engine plain(stateless, data_spec(whole));
    const HostTensor expected =
        parts_of(plain.predict_step({&whole, rows_of_step(0, kBatch, kBatch)})[0]);
    const Dataset parts = part_data();
    for (const char* mesh : {"[1, 1]", "[2, 1]", "[2, 2]", "[1, 4]"}) {
      CAPTURE(layer);
      CAPTURE(mesh);
      const Config config = config_of_layer(layer, true, kStepsOfPart, mesh);
      Engine engine(config, data_spec(parts));
      CHECK(difference(predict_parts(engine, parts), expected) < 1e-13);
      CHECK(difference(predict_parts(engine, parts), expected) > 1e-3);  // from the last states on
      reset(engine);
      CHECK(difference(predict_parts(engine, parts), expected) < 1e-13);
    }
  }
}

TEST_CASE("training and evaluation carry states, alike on every mesh") {
  const Dataset data = part_data();
  const auto losses = [&](const char* layer, const char* mesh) {
    const Config config = config_of_layer(layer, true, kStepsOfPart, mesh);
    Engine engine(config, data_spec(data));
    std::vector<double> out;
    for (int64_t step = 0; step < 2 * kParts; ++step) {
      const std::vector<int64_t> rows = rows_of_step(step, kBatch, kParts * kBatch);
      engine.train_step({&data, rows});
      out.push_back(engine.last_loss());
      engine.reset_metrics();
      engine.test_step({&data, rows});
      out.push_back(engine.evaluate_logs()[0].second);
    }
    return out;
  };
  for (const char* layer : kLayers) {
    const std::vector<double> one = losses(layer, "[1, 1]");
    CHECK(one[0] != one[1]);  // other states, and other weights
    for (const char* mesh : {"[4, 1]", "[2, 2]"}) {
      const std::vector<double> other = losses(layer, mesh);
      for (size_t i = 0; i < one.size(); ++i)
        CHECK(std::abs(one[i] - other[i]) < 1e-12);
    }
  }
}

TEST_CASE("a stateful layer refuses a batch of another size") {
  const Dataset data = part_data();
  const Config config = config_of_layer(kLayers[0], true, kStepsOfPart, "[1, 1]");
  Engine engine(config, data_spec(data));
  const std::vector<int64_t> rows = {0, 1, 2};
  try {
    engine.predict_step({&data, rows});
    FAIL("no error");
  } catch (const ConfigError& e) {
    CHECK(std::string(e.what()).find(
              "layer `r` (LSTM) is stateful with batches of 4, and gets a batch of 3") !=
          std::string::npos);
  }
}

TEST_CASE("batches that a stateful layer does not take are known from the numbers of samples") {
  const auto found = [](int64_t train, int64_t validation,
                        const std::vector<std::string>& overrides) {
    const Config config = config_from(
        "data:\n  train: {source: random, samples: 8, shape: [2, 3], labels: [4]}\n"
        "  validation: {source: random, samples: 8, shape: [2, 3], labels: [4]}\n"
        "model: {layers: [{Input: {shape: [2, 3], batch_size: 4}}, {LSTM: {name: r, units: 4, "
        "stateful: true}}]}\n"
        "compile: {loss: mse}\nfit: {batch_size: 4}\n",
        overrides);
    RunData data;
    data.train = dataset_of(signed_tensor(1, {train, 2, 3}), signed_tensor(2, {train, 4}));
    data.validation =
        dataset_of(signed_tensor(3, {validation, 2, 3}), signed_tensor(4, {validation, 4}));
    Diagnostics out;
    check_state_batches(config, data, true, DataPart::kValidation, out);
    return out.render();
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  CHECK(found(8, 8, {}).empty());
  const std::string kept = found(9, 10, {});
  has(kept,
      "error[E120]: layer `r` (LSTM) is stateful with batches of 4, and the 9 train samples "
      "make a batch of 1");
  has(kept, "and the 10 validation samples make a batch of 2");
  has(kept,
      "`data: {remainder: drop}` leaves it out, and so does `slice: \"[:8]\"` of "
      "data.validation");
  const std::string dropped = found(9, 10, {"data.remainder=drop"});
  has(dropped,
      "warning[W318]: the last 2 of the 10 validation samples are left out: layer `r` "
      "takes batches of 4");
  CHECK(dropped.find("error") == std::string::npos);
  has(found(8, 3, {"data.remainder=drop"}), "error[E316]: 3 validation samples are fewer");
  CHECK(found(8, 10, {"fit.validation_steps=2", "evaluate.steps=1"}).empty());
  CHECK(found(9, 8, {"fit.limit_steps=2"}).empty());
  has(found(8, 8, {"fit.validation_batch_size=2"}), "the 8 validation samples make a batch of 2");
}

TEST_CASE("samples to predict that are no whole batches are refused before the first") {
  const Dataset data = part_data();  // 12 samples
  const Config config = config_of_layer(kLayers[0], true, kStepsOfPart, "[1, 1]");
  check_predicted_batches(config, data, {});
  Dataset fewer = select_samples(data, {0, 1, 2, 3, 4, 5});
  CHECK_THROWS_WITH_AS(check_predicted_batches(config, fewer, {}),
                       doctest::Contains("and the 6 given samples make a batch of 2"), ConfigError);
  try {
    check_predicted_batches(config, fewer, {});
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().render().find("predict 4 or 8 samples") != std::string::npos);
  }
}
