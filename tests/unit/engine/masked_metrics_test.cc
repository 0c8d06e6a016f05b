// Losses and metrics of an output with a mask, by hand: sum(m v) / sum(m) over all batches, of
// weighted ones sum(m w v) / sum(m w); with the head and its loss as one op and apart.
#include <doctest/doctest.h>

#include <cmath>

#include "support/engine_case.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr double kMaskedBound = 1e-6;  // metrics are float32

// The logits of an id are its row of the table; id 0 is padding.
constexpr const char* kLookUp = R"(
dtype_policy: float64
model:
  layers:
    - Input: {shape: [4], dtype: int32}
    - Embedding: {name: table, input_dim: 4, output_dim: 3, mask_zero: true}
    - Dense: {name: head, units: 3, use_bias: false, kernel_initializer: identity}
compile:
  optimizer: {SGD: {learning_rate: 0.5}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy, {SparseCategoricalCrossentropy: {name: entropy, from_logits: true}}]
  weighted_metrics: [{SparseCategoricalAccuracy: {name: weighted}}]
)";
// A metric that reads whole logits.
const std::string kTopTwo =
    "compile.metrics=[accuracy, {SparseCategoricalCrossentropy: {name: entropy, from_logits: "
    "true}}, {SparseTopKCategoricalAccuracy: {name: top, k: 2}}]";

// Padding would be a hit. Of the other five steps, in order: a hit, a miss (its class is the last
// of three), a miss (its class is the second), and two hits.
Dataset padded_sequences() {
  Dataset out = dataset_of(tensor_of<double>(DType::kInt32, {2, 4}, {1, 2, 0, 0, 3, 0, 1, 3}),
                           tensor_of<double>(DType::kInt32, {2, 4}, {0, 0, 0, 0, 2, 0, 0, 1}));
  out.sample_weight =
      make_rows(tensor_of<double>(DType::kFloat32, {2, 4}, {1, 2, 9, 9, 3, 9, 0.5, 1}));
  return out;
}

// The cross-entropy of each of these steps: every row but that of padding has logits one apart.
const double kLargest = std::log(1 + std::exp(-1) + std::exp(-2));
const double kEntropies[] = {kLargest, kLargest + 2, kLargest + 1, kLargest, kLargest};

struct MaskedRun {
  std::map<std::string, double> logs;
  double last_loss = 0;
  int heads = 0;  // ops that have the head and the loss
};

// One step for each batch.
MaskedRun run_batches(const std::vector<std::vector<int64_t>>& batches, bool training,
                      const std::vector<std::string>& overrides, bool is_weighted) {
  const Config config = config_from(kLookUp, overrides);
  Dataset data = padded_sequences();
  if (!is_weighted) {
    data.sample_weight = nullptr;
  }
  Engine engine(config, data_spec(data), {.num_workers = 1});
  engine.write_variable(
      "table/embeddings",
      tensor_of<double>(DType::kFloat64, {4, 3}, {5, 0, 0, 2, 1, 0, 0, 1, 2, 0, 2, 1}));
  for (const std::vector<int64_t>& rows : batches) {
    training ? engine.train_step({&data, rows}) : engine.test_step({&data, rows});
  }
  MaskedRun out;
  for (const Node& node : engine.setup().global_graph(StepKind::kTrain, 2).nodes) {
    out.heads += node.op->name == "linear_cross_entropy" ? 1 : 0;
  }
  for (const auto& [name, value] : engine.logs()) {
    out.logs[name] = value;
  }
  out.last_loss = engine.last_loss();
  return out;
}

void check_log(const MaskedRun& run, const std::string& name, double expected) {
  CAPTURE(name);
  REQUIRE(run.logs.contains(name));
  CHECK(std::abs(run.logs.at(name) - expected) <= kMaskedBound);
}

const std::vector<std::vector<std::string>> kHeads = {{}, {kTopTwo}};

}  // namespace

TEST_CASE("masked metrics: a mean over the steps that count, in training and in evaluation") {
  double entropy = 0;
  for (const double value : kEntropies) {
    entropy += value / 5;
  }
  for (const std::vector<std::string>& head : kHeads) {
    for (const bool training : {true, false}) {
      CAPTURE(training);
      const MaskedRun run = run_batches({{0, 1}}, training, head, false);
      CHECK(run.heads == (head.empty() ? 1 : 0));
      if (training) {
        CHECK(std::abs(run.last_loss - entropy) <= 1e-12);
      }
      check_log(run, "loss", entropy);
      check_log(run, "accuracy", 3 / 5.0);
      check_log(run, "entropy", entropy);
      if (!head.empty()) {
        check_log(run, "top", 4 / 5.0);
      }
    }
  }
}

TEST_CASE("masked metrics: batches count by their steps, their losses by their samples") {
  const double first = (kEntropies[0] + kEntropies[1]) / 2;
  const double second = (kEntropies[2] + kEntropies[3] + kEntropies[4]) / 3;
  for (const std::vector<std::string>& head : kHeads) {
    const MaskedRun run = run_batches({{0}, {1}}, false, head, false);
    check_log(run, "loss", (first + second) / 2);
    check_log(run, "accuracy", 3 / 5.0);
    check_log(run, "entropy", (2 * first + 3 * second) / 5);
    if (!head.empty()) {
      check_log(run, "top", 4 / 5.0);
    }
  }
}

TEST_CASE("masked metrics: weights multiply the mask") {
  const double weights[] = {1, 2, 3, 0.5, 1};
  double sum = 0, entropy = 0;
  for (size_t i = 0; i < 5; ++i) {
    sum += weights[i] * kEntropies[i];
    entropy += kEntropies[i] / 5;
  }
  for (const std::vector<std::string>& head : kHeads) {
    for (const bool training : {true, false}) {
      CAPTURE(training);
      const MaskedRun run = run_batches({{0, 1}}, training, head, true);
      check_log(run, "loss", sum / 5);  // over the number of steps that count
      check_log(run, "weighted", (1 + 0.5 + 1) / 7.5);
      check_log(run, "accuracy", 3 / 5.0);
      check_log(run, "entropy", entropy);
    }
  }
}

TEST_CASE("masked metrics: every mesh has the same numbers") {
  for (const std::vector<std::string>& head : kHeads) {
    const MaskedRun one = run_batches({{0, 1}}, true, head, true);
    for (const std::string shape : {"[2, 1]", "[1, 2]", "[2, 2]"}) {
      CAPTURE(shape);
      std::vector<std::string> overrides = head;
      overrides.push_back("distribution.device_mesh={shape: " + shape +
                          ", axis_names: [data, seq]}");
      overrides.push_back("distribution.layout_map=context");
      const MaskedRun run = run_batches({{0, 1}}, true, overrides, true);
      CHECK(std::abs(run.last_loss - one.last_loss) <= 1e-12);
      for (const auto& [name, value] : one.logs) {
        check_log(run, name, value);
      }
    }
  }
}

TEST_CASE("masked metrics: values that are not of single steps have padding in them") {
  // Means of the logits: 5/3 of padding, 1 of other steps.
  for (const std::string mesh : {"[1, 1]", "[2, 2]"}) {
    for (const auto& [expression, expected] :
         {std::pair("mean(y_pred, axis=-1)", 1.0), std::pair("y_pred", 1.0),
          std::pair("mean(y_pred, axis=[1, 2])", 1.25), std::pair("mean(y_pred, axis=1)", 1.25),
          std::pair("mean(y_pred, axis=1, keepdims=True)", 1.25),
          std::pair("mean(y_pred)", 1.25)}) {
      CAPTURE(mesh);
      CAPTURE(expression);
      const std::string function = std::string("{Lambda: {name: mine, function: \"=") + expression;
      const MaskedRun run =
          run_batches({{0, 1}}, true,
                      {"compile.loss=" + function + "\"}}",
                       "compile.metrics=[" + function + "\"}}]", "compile.weighted_metrics=[]",
                       "distribution.device_mesh={shape: " + mesh + ", axis_names: [data, seq]}",
                       "distribution.layout_map=context"},
                      false);
      check_log(run, "loss", expected);
      check_log(run, "mine", expected);
    }
  }
}
