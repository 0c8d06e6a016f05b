// Every loss and every metric under random meshes, layouts, pins of the output and ZeRO levels, in
// float64, with and without sample weights: losses, weights after some steps and the metrics'
// values equal one device's.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "base/text.h"
#include "config/catalogue.h"
#include "support/engine_case.h"
#include "support/layout_case.h"
#include "support/sampled.h"
#include "support/test_gpu.h"

using namespace meshtrain;
using namespace meshtrain::test;
using meshtrain::testing::Random;

namespace {

constexpr int64_t kBatch = 8, kSteps = 2, kClasses = 4;
constexpr int kRounds = 3;
constexpr size_t kStride = 4;
constexpr double kTolerance = 1e-9;

// What belongs to one shape of targets. Losses and metrics in YAML flow style.
struct Family {
  const char* input;
  const char* activation;
  Shape target;  // without the batch
  bool are_ids = false;
  std::vector<std::string> losses, metrics;
};

const Family kFamilies[] = {
    {"[6]",
     "sigmoid",
     {kClasses},
     false,
     {"MeanSquaredError",
      "MeanAbsoluteError",
      "MeanAbsolutePercentageError",
      "MeanSquaredLogarithmicError",
      "Huber: {delta: 0.3}",
      "LogCosh",
      "CosineSimilarity",
      "Poisson",
      "KLDivergence",
      "Hinge",
      "SquaredHinge",
      "CategoricalHinge",
      "BinaryCrossentropy: {label_smoothing: 0.1}",
      "BinaryFocalCrossentropy: {apply_class_balancing: true}",
      "CategoricalCrossentropy: {from_logits: true}",
      "crossentropy",
      "CategoricalFocalCrossentropy: {alpha: [0.1, 0.2, 0.3, 0.4]}",
      "Dice",
      "Dice: {axis: -1}",
      "Tversky: {alpha: 0.3, axis: [0]}",
      "Lambda: {function: \"=mean(square(y_true - y_pred), axis=-1)\"}"},
     {"MeanSquaredError",
      "MeanAbsoluteError",
      "MeanAbsolutePercentageError",
      "MeanSquaredLogarithmicError",
      "RootMeanSquaredError",
      "LogCoshError",
      "CosineSimilarity",
      "Poisson",
      "KLDivergence",
      "Hinge",
      "SquaredHinge",
      "CategoricalHinge",
      "BinaryCrossentropy",
      "CategoricalCrossentropy",
      "Mean",
      "Sum",
      "R2Score",
      "R2Score: {class_aggregation: null}",
      "accuracy",
      "crossentropy",
      "Accuracy: {}",
      "BinaryAccuracy",
      "CategoricalAccuracy",
      "TopKCategoricalAccuracy: {k: 2}",
      "TruePositives",
      "FalsePositives: {thresholds: [0.6, 0.4]}",
      "TrueNegatives",
      "FalseNegatives",
      "Precision: {top_k: 2}",
      "Recall: {class_id: 1}",
      "Recall: {thresholds: [0.5, 0.3, 0.7]}",
      "SensitivityAtSpecificity: {specificity: 0.5}",
      "SpecificityAtSensitivity: {sensitivity: 0.5}",
      "PrecisionAtRecall: {recall: 0.4}",
      "RecallAtPrecision: {precision: 0.4}",
      "AUC",
      "AUC: {curve: PR, multi_label: true}",
      "AUC: {thresholds: [0.45, 0.5], label_weights: [1, 2, 0, 1]}",
      "F1Score",
      "F1Score: {average: micro}",
      "FBetaScore: {beta: 2.0, threshold: 0.5, average: weighted}",
      "OneHotIoU: {num_classes: 4, target_class_ids: [0, 2]}",
      "OneHotMeanIoU: {num_classes: 4}",
      "Lambda: {function: \"=mean(abs(y_true - y_pred), axis=-1)\"}"}},
    {"[6]",
     "softmax",
     {},
     true,
     {"SparseCategoricalCrossentropy", "SparseCategoricalCrossentropy: {ignore_class: 2}",
      "CategoricalGeneralizedCrossEntropy", "Circle: {gamma: 4.0}"},
     {"SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy: {k: 2}",
      "SparseCategoricalCrossentropy", "Perplexity: {mask_token_id: 2}",
      "BitsPerByte: {bytes_per_token: 4}",
      "IoU: {num_classes: 4, target_class_ids: [1], "
      "sparse_y_pred: false}",
      "MeanIoU: {num_classes: 4, sparse_y_pred: false}"}},
    {"[5, 6]", "linear", {2}, true, {"CTC"}, {"Mean"}},
    {"[6]",
     "linear",
     {kClasses},
     false,
     {"MeanSquaredError"},
     {"PearsonCorrelation", "ConcordanceCorrelation", "R2Score: {num_regressors: 2}", "Sum"}},
};
// Beside outputs of one number.
const std::vector<std::string> kColumnMetrics = {"BinaryIoU"};

std::string random_distribution(Random& random, const std::string& output_rank_ones) {
  struct Mesh {
    const char* text;
    int64_t model;
  };
  const Mesh meshes[] = {{"shape: [4], axis_names: [data]", 1},
                         {"shape: [2, 2], axis_names: [data, model]", 2},
                         {"shape: [4, 2], axis_names: [data, model]", 2},
                         {"shape: [1, 4], axis_names: [data, model]", 4}};
  const Mesh& mesh = meshes[random.below(4)];
  std::string map;
  const auto add = [&](const std::string& key, const std::string& layout) {
    if (mesh.model > 1 && random.chance(50)) {
      map += fmt::format("    {}: {}\n", key, layout);
    }
  };
  add("d1/kernel", "[null, model]");
  add("head/kernel", random.chance(50) ? "[null, model]" : "[model, null]");
  add("head/bias", "[model]");
  add("head/output",
      fmt::format("[{}, {}model]", random.chance(50) ? "data" : "null", output_rank_ones));
  return fmt::format(
      "distribution:\n  type: ModelParallel\n  batch_dim_name: data\n  zero: {}\n"
      "  device_mesh: {{{}}}\n  layout_map:{}\n{}",
      random.below(4), mesh.text, map.empty() ? " {}" : "", map);
}

std::string model_text(const Family& family, int64_t units, const std::string& loss,
                       const std::vector<std::string>& metrics) {
  std::string list;
  for (const std::string& metric : metrics) {
    const bool is_map = metric.find(':') != std::string::npos;
    list += (list.empty() ? "" : ", ") + (is_map ? "{" + metric + "}" : metric);
  }
  const bool is_map = loss.find(':') != std::string::npos;
  return fmt::format(
      "dtype_policy: float64\nmodel:\n  layers:\n    - Input: {{shape: {}}}\n"
      "    - Dense: {{name: d1, units: 8, activation: tanh}}\n"
      "    - Dense: {{name: head, units: {}, activation: {}}}\n"
      "compile:\n  optimizer: {{SGD: 0.1}}\n  loss: {}\n  metrics: [{}]\n  weighted_metrics: [{}]\n"
      "fit: {{batch_size: 8}}\n",
      family.input, units, family.activation, is_map ? "{" + loss + "}" : loss, list, list);
}

Dataset data_of(Random& random, const Family& family, int64_t units, bool weighted) {
  const int64_t samples = kBatch * kSteps;
  Shape x_shape = {samples, 6};
  if (std::string(family.input) == "[5, 6]") {
    x_shape = {samples, 5, 6};
  }
  HostTensor x(DType::kFloat64, x_shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, random.normal());
  }
  Shape y_shape = family.target;
  if (!family.are_ids) {
    y_shape = {units};
  }
  y_shape.insert(y_shape.begin(), samples);
  const bool is_real = !family.are_ids && std::string(family.activation) == "linear";
  HostTensor y(family.are_ids ? DType::kInt32 : DType::kFloat64, y_shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    y.set(i, is_real ? random.normal()
                     : static_cast<double>(random.below(family.are_ids ? kClasses : 2)));
  }
  Dataset data = dataset_of(std::move(x), std::move(y));
  if (weighted) {
    HostTensor weights(DType::kFloat32, {samples});
    for (int64_t i = 0; i < samples; ++i) {
      weights.set(i, 0.25 * static_cast<double>(random.below(8)));
    }
    data.sample_weight = make_rows(std::move(weights));
  }
  return data;
}

struct Outcome {
  std::vector<double> losses, weights;
  Logs logs;
};

Outcome train(const std::string& yaml, const Dataset& data) {
  const Config config = config_from(on_test_gpu(yaml));
  EngineOptions options;
  options.num_workers = 2;
  Engine engine(config, data_spec(data), options);
  Outcome out;
  for (int64_t step = 0; step < kSteps; ++step) {
    engine.train_step({&data, rows_of_step(step, kBatch, data.num_samples)});
    out.losses.push_back(engine.last_loss());
  }
  out.logs = engine.logs();
  for (const std::string& path : engine.weight_paths()) {
    const HostTensor weight = engine.read_variable(path);
    for (int64_t i = 0; i < weight.size(); ++i) {
      out.weights.push_back(weight.at(i));
    }
  }
  return out;
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(std::abs(found[i] - expected[i]) <= kTolerance * (1 + std::abs(expected[i])));
  }
}

// Draws as much of `random` whether it runs the case or not.
void check_case(Random& random, bool runs, const Family& family, int64_t units,
                const std::string& loss, const std::vector<std::string>& metrics) {
  const std::string model = model_text(family, units, loss, metrics);
  const Dataset data = data_of(random, family, units, random.chance(50));
  Outcome expected;
  if (runs) {
    expected =
        train(model + "distribution:\n  device_mesh: {shape: [1], axis_names: [data]}\n", data);
    CHECK(std::isfinite(expected.losses[0]));
  }
  const bool has_steps = std::string(family.input) == "[5, 6]";
  for (int round = 0; round < kRounds; ++round) {
    // An output of one number cannot be split over the model axis.
    const std::string distribution =
        units == 1 ? "distribution:\n  device_mesh: {shape: [4], axis_names: [data]}\n"
                   : random_distribution(random, has_steps ? "null, " : "");
    if (!runs || (round > 0 && is_on_gpu())) {
      continue;  // on a GPU the same cases, fewer of them
    }
    CAPTURE(model);
    CAPTURE(distribution);
    const Outcome found = train(model + distribution, data);
    check_close(found.losses, expected.losses);
    check_close(found.weights, expected.weights);
    REQUIRE(found.logs.size() == expected.logs.size());
    for (size_t i = 0; i < found.logs.size(); ++i) {
      CAPTURE(found.logs[i].first);
      CHECK(found.logs[i].first == expected.logs[i].first);
      CHECK(std::abs(found.logs[i].second - expected.logs[i].second) <=
            kTolerance * (1 + std::abs(expected.logs[i].second)));
    }
  }
}

std::string class_of(const std::string& text) {
  return text.substr(0, text.find(':'));
}

TEST_CASE("every loss and metric is the same under random meshes and layouts" *
          doctest::test_suite("parts")) {
  Random random(20);
  size_t count = 0;
  std::set<std::string> losses, metrics;
  for (const Family& family : kFamilies) {
    const size_t cases = std::max(family.losses.size(), (family.metrics.size() + 3) / 4);
    for (size_t c = 0; c < cases; ++c) {
      const std::string& loss = family.losses[c % family.losses.size()];
      std::vector<std::string> some;
      for (size_t i = 0; i < std::min<size_t>(4, family.metrics.size()); ++i) {
        some.push_back(family.metrics[(4 * c + i) % family.metrics.size()]);
        metrics.insert(class_of(some.back()));
      }
      losses.insert(class_of(loss));
      check_case(random, is_sampled(count++, kStride), family, kClasses, loss, some);
    }
  }
  check_case(random, is_sampled(count++, kStride), kFamilies[0], 1, "BinaryCrossentropy",
             kColumnMetrics);
  metrics.insert(class_of(kColumnMetrics[0]));
  for (const std::string& name : class_names(Category::kLoss)) {
    CHECK_MESSAGE(losses.contains(name), name);
  }
  for (const std::string& name : class_names(Category::kMetric)) {
    CHECK_MESSAGE(metrics.contains(name), name);
  }
}

}  // namespace
