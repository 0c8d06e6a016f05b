// Values computed by Keras in float32.
#include <cmath>

#include "config/catalogue.h"
#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

struct Batch {
  HostTensor y, p;
  std::optional<HostTensor> weight;
};

// The metric after these batches.
double value_of(const Metric& metric, const std::vector<Batch>& batches) {
  std::vector<HostTensor> state;
  for (const Metric::State& s : metric.states) {
    state.emplace_back(s.dtype.value_or(DType::kFloat32), s.shape);
  }
  for (const Batch& batch : batches) {
    std::vector<const HostTensor*> inputs = {&batch.y, &batch.p};
    for (const HostTensor& s : state) {
      inputs.push_back(&s);
    }
    if (batch.weight) {
      inputs.push_back(&*batch.weight);
    }
    state = run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
      return metric.update(b, in[0], in[1], batch.weight ? in.back() : kNone,
                           std::span(in).subspan(2, metric.states.size()));
    });
  }
  return metric.result(state).at(0);
}

Metric metric_for(const ConfigObject& object, const Batch& batch) {
  Diagnostics diagnostics;
  Metric metric =
      make_metric(object, batch.y.shape(), batch.p.shape(), DType::kFloat32, diagnostics);
  CHECK(diagnostics.num_errors() == 0);
  return metric;
}

// The vector of a metric over one batch without weights.
std::vector<double> values_of(const char* name, const NamedArgs& args, const Batch& batch) {
  const Metric metric = metric_for(make_object(Category::kMetric, name, args), batch);
  std::vector<HostTensor> zeros;
  std::vector<const HostTensor*> inputs = {&batch.y, &batch.p};
  for (const Metric::State& s : metric.states) {
    zeros.emplace_back(DType::kFloat32, s.shape);
  }
  for (const HostTensor& zero : zeros) {
    inputs.push_back(&zero);
  }
  return metric.result(run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
    return metric.update(b, in[0], in[1], kNone, std::span(in).subspan(2));
  }));
}

double value_of(const char* name, const NamedArgs& args, Batch batch) {
  const Metric metric = metric_for(make_object(Category::kMetric, name, args), batch);
  std::vector<Batch> batches;
  batches.push_back(std::move(batch));
  return value_of(metric, batches);
}

HostTensor three_probabilities() {
  return floats({2, 3}, {.05, .9, .05, .1, .8, .1});
}
Batch sparse() {
  return {ints({2}, {1, 2}), three_probabilities(), std::nullopt};
}
Batch categorical() {
  return {floats({2, 3}, {0, 1, 0, 0, 0, 1}), three_probabilities(), std::nullopt};
}
Batch binary() {
  return {floats({4, 1}, {0, 0, 1, 1}), floats({4, 1}, {0, .5, .3, .9}), std::nullopt};
}

TEST_CASE("metrics have Keras' values") {
  check_near({value_of("SparseCategoricalAccuracy", {}, sparse()),
              value_of("CategoricalAccuracy", {}, categorical()),
              value_of("SparseTopKCategoricalAccuracy", {{"k", 2}}, sparse()),
              value_of("TopKCategoricalAccuracy", {{"k", 2}}, categorical()),
              value_of("TopKCategoricalAccuracy", {{"k", 1}}, categorical())},
             {.5, .5, 1, 1, .5});
  check_near({value_of("BinaryAccuracy", {}, binary()), value_of("bce", {}, binary()),
              value_of("mse", {}, binary()), value_of("RootMeanSquaredError", {}, binary()),
              value_of("mae", {}, binary())},
             {.75, .5006202, .1875, .4330127, .325});
  check_near({value_of("CategoricalCrossentropy", {}, categorical()),
              value_of("SparseCategoricalCrossentropy", {}, sparse()),
              value_of("SparseCategoricalCrossentropy", {{"from_logits", true}}, sparse())},
             {1.2039728, 1.2039728, 1.0037599});
}

TEST_CASE("Perplexity is that of Keras Hub") {
  // keras_hub.metrics.Perplexity 0.32.0 on these arrays.
  const auto batch = [](bool is_weighted, bool is_probabilities = false) {
    std::vector<double> p = {.5, -1, .25, 1, 0, 2, -.5, 1.5, 0, .1, .2, .3, 2, -2, 0, 0, 0, 1};
    for (size_t row = 0; is_probabilities && row < p.size(); row += 3) {
      const double sum = std::exp(p[row]) + std::exp(p[row + 1]) + std::exp(p[row + 2]);
      for (size_t i = row; i < row + 3; ++i)
        p[i] = std::exp(p[i]) / sum;
    }
    HostTensor values(DType::kFloat32, {2, 3, 3});
    for (size_t i = 0; i < p.size(); ++i)
      values.set(static_cast<int64_t>(i), p[i]);
    Batch out{ints({2, 3}, {0, 2, 1, 1, 0, 2}), std::move(values), std::nullopt};
    if (is_weighted)
      out.weight = floats({2, 3}, {1, .5, 2, 0, 1, 3});
    return out;
  };
  const NamedArgs logits = {{"from_logits", true}};
  const NamedArgs masked = {{"from_logits", true}, {"mask_token_id", 0}};
  check_near(
      {value_of("Perplexity", logits, batch(false)), value_of("Perplexity", masked, batch(false)),
       value_of("Perplexity", logits, batch(true)), value_of("Perplexity", masked, batch(true)),
       value_of("Perplexity", {}, batch(false, true))},
      {1.7058535, 1.8073059, 1.5543420, 1.5671289, 1.7058535});
  Batch nothing = batch(false);
  nothing.y = ints({2, 3}, {0, 0, 0, 0, 0, 0});
  CHECK(value_of("Perplexity", masked, std::move(nothing)) == 0);

  // The same mean in bits, of texts with 1 and with 4 bytes a token.
  const NamedArgs bytes = {{"from_logits", true}, {"bytes_per_token", 4.0}};
  check_near(
      {value_of("BitsPerByte", logits, batch(false)), value_of("BitsPerByte", bytes, batch(true)),
       value_of("BitsPerByte", masked, batch(true))},
      {std::log2(1.7058535), std::log2(1.5543420) / 4, std::log2(1.5671289)});
}

TEST_CASE("weighted metrics divide by the sum of the weights") {
  Batch batch = categorical();
  batch.weight = floats({2}, {.2, .8});
  check_near({value_of("CategoricalAccuracy", {}, std::move(batch))}, {.2});
  // Per-sample means first, then weights.
  Batch regression{floats({2, 2}, {0, 0, 0, 0}), floats({2, 2}, {1, 3, 1, 1}), floats({2}, {3, 1})};
  check_near({value_of("mse", {}, std::move(regression))}, {(3 * 5.0 + 1) / 4});
}

TEST_CASE("Accuracy compares elements") {
  check_near({value_of("Accuracy", {},
                       {floats({4, 1}, {1, 2, 3, 4}), floats({4, 1}, {0, 2, 3, 4}), std::nullopt})},
             {.75});
  Batch weighted{floats({4, 1}, {1, 2, 3, 4}), floats({4, 1}, {0, 2, 3, 4}),
                 floats({4}, {1, 1, 0, 0})};
  check_near({value_of("Accuracy", {}, std::move(weighted))}, {.5});
}

TEST_CASE("accuracy and crossentropy go by the shapes") {
  check_near({value_of("accuracy", {}, sparse()), value_of("acc", {}, categorical()),
              value_of("accuracy", {}, binary())},
             {.5, .5, .75});
  check_near({value_of("crossentropy", {}, sparse()), value_of("ce", {}, categorical()),
              value_of("ce", {}, binary())},
             {1.2039728, 1.2039728, .5006202});
  Batch column = sparse();
  column.y = ints({2, 1}, {1, 2});
  check_near({value_of("accuracy", {}, std::move(column))}, {.5});
}

TEST_CASE("binary accuracy against integer labels compares whole numbers") {
  Batch batch = binary();
  batch.y = tensor_of<int>(DType::kUInt8, {4}, {0, 0, 1, 1});
  check_near({value_of("BinaryAccuracy", {{"threshold", .2}}, std::move(batch))}, {.75});
}

TEST_CASE("results run over all batches") {
  const Metric metric =
      metric_for(make_object(Category::kMetric, "RootMeanSquaredError"), binary());
  std::vector<Batch> batches;
  batches.push_back({floats({2, 1}, {0, 0}), floats({2, 1}, {3, 3}), std::nullopt});
  batches.push_back({floats({1, 1}, {0}), floats({1, 1}, {0}), std::nullopt});
  check_near({value_of(metric, batches)}, {std::sqrt(6.0)});
  CHECK(value_of(metric, {}) == 0);
}

TEST_CASE("the loss tracker weighs batches by their size") {
  const Metric mean = make_mean("loss");
  CHECK(mean.name == "loss");
  std::vector<Batch> batches;
  for (const auto& [loss, size] :
       {std::pair(10.0, 2.0), std::pair(30.0, 2.0), std::pair(50.0, 1.0)}) {
    batches.push_back({floats({}, {0}), floats({}, {loss}), floats({}, {size})});
  }
  check_near({value_of(mean, batches)}, {26}, 1e-5);
}

TEST_CASE("a metric is called as it was written") {
  const Batch batch = sparse();
  const auto name = [&](const char* spelled, const NamedArgs& args = {}) {
    return metric_for(make_object(Category::kMetric, spelled, args), batch).name;
  };
  CHECK(name("acc") == "acc");
  CHECK(name("accuracy") == "accuracy");
  CHECK(name("SparseCategoricalAccuracy") == "sparse_categorical_accuracy");
  CHECK(name("sparse_categorical_accuracy") == "sparse_categorical_accuracy");
  CHECK(name("SparseTopKCategoricalAccuracy", {{"name", "top2"}}) == "top2");
  CHECK(metric_for(make_object(Category::kMetric, "mse"), binary()).name == "mse");
  CHECK(metric_for(make_object(Category::kMetric, "RootMeanSquaredError"), binary()).name ==
        "root_mean_squared_error");
}

TEST_CASE("metrics at thresholds have Keras' values") {
  check_near({value_of("AUC", {}, binary()), value_of("AUC", {{"curve", "PR"}}, binary()),
              value_of("Precision", {}, binary()), value_of("Recall", {}, binary()),
              value_of("TruePositives", {}, binary()), value_of("FalsePositives", {}, binary()),
              value_of("TrueNegatives", {}, binary()), value_of("FalseNegatives", {}, binary()),
              value_of("BinaryIoU", {}, binary()), value_of("LogCoshError", {}, binary()),
              value_of("SensitivityAtSpecificity", {{"specificity", .5}}, binary()),
              value_of("PrecisionAtRecall", {{"recall", .5}}, binary())},
             {.75, .7972674, 1, .5, 1, 0, 2, 1, .3333333, .0880941, 1, 1}, 1e-5);
}

TEST_CASE("scores have Keras' values") {
  const auto f1 = [](const NamedArgs& args) {
    NamedArgs all = {{"threshold", .5}};
    all.insert(all.end(), args.begin(), args.end());
    const Batch batch{floats({3, 3}, {1, 1, 1, 1, 0, 0, 1, 1, 0}),
                      floats({3, 3}, {.2, .6, .7, .2, .6, .6, .6, .8, 0}), std::nullopt};
    return values_of("F1Score", all, batch);
  };
  check_near(f1({}), {.5, .8, .6666666});
  check_near(f1({{"average", "micro"}}), {.6666666});
  check_near(f1({{"average", "macro"}}), {.6555555});
  check_near(f1({{"average", "weighted"}}), {.6277778});
  check_near({value_of("R2Score", {},
                       {floats({3, 1}, {1, 4, 3}), floats({3, 1}, {2, 4, 4}), std::nullopt}),
              value_of("MeanIoU", {{"num_classes", 2}},
                       {ints({4, 1}, {0, 0, 1, 1}), floats({4, 1}, {0, 1, 0, 1}), std::nullopt})},
             {.5714285, .3333333});
}

TEST_CASE("R2Score of targets far from 0 keeps its digits") {
  // 1 - 2 / (14 / 3), whatever is added to both.
  check_near({value_of("R2Score", {},
                       {floats({3, 1}, {100001, 100004, 100003}),
                        floats({3, 1}, {100002, 100004, 100004}), std::nullopt})},
             {.5714285});
}

TEST_CASE("arguments of metrics must fit the output") {
  const auto complaint = [](const char* name, const NamedArgs& args) {
    Diagnostics diagnostics;
    make_metric(make_object(Category::kMetric, name, args), {kUnknownDim, 3}, {kUnknownDim, 3},
                DType::kFloat32, diagnostics);
    REQUIRE(diagnostics.num_errors() == 1);
    CHECK(diagnostics.list()[0].code == "E113");
    return diagnostics.list()[0].message;
  };
  CHECK(complaint("Precision", {{"class_id", 3}}) ==
        "metric `precision`: `class_id` is 3; the output (None, 3) has 3 classes");
  CHECK(complaint("Recall", {{"top_k", 4}}) ==
        "metric `recall`: `top_k` is 4; the output (None, 3) has 3 classes");
  CHECK(complaint("AUC", {{"num_labels", 3}}) ==
        "metric `auc`: `num_labels` needs `multi_label: true`");
  CHECK(complaint("AUC", {{"label_weights", {1.0, 2.0}}}) ==
        "metric `auc`: `label_weights` has 2 numbers; the output (None, 3) has 3 labels");
}

TEST_CASE("metrics at many thresholds need no more memory than their predictions") {
  Graph graph;
  Builder b(graph);
  const ConfigObject object = make_object(Category::kMetric, "AUC");
  Diagnostics diagnostics;
  const Metric metric =
      make_metric(object, {kUnknownDim, 10}, {kUnknownDim, 10}, DType::kFloat32, diagnostics);
  const ValueId y = b.input("y", {512, 10}, DType::kFloat32, true);
  const ValueId p = b.input("p", {512, 10}, DType::kFloat32, true);
  std::vector<ValueId> state;
  for (const Metric::State& s : metric.states) {
    state.push_back(b.input(s.name, s.shape, DType::kFloat32, false));
  }
  metric.update(b, y, p, kNone, state);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    CHECK(num_elements(graph.values[v].shape) <= 512 * 10);
  }
}

TEST_CASE("accuracies are better when larger and errors when smaller") {
  CHECK(metric_for(make_object(Category::kMetric, "acc"), sparse()).larger_is_better);
  CHECK(!metric_for(make_object(Category::kMetric, "mse"), binary()).larger_is_better);
}

TEST_CASE("targets that do not fit a metric are explained") {
  Diagnostics diagnostics;
  make_metric(make_object(Category::kMetric, "CategoricalAccuracy"), {kUnknownDim},
              {kUnknownDim, 10}, DType::kFloat32, diagnostics);
  REQUIRE(diagnostics.num_errors() == 1);
  CHECK(diagnostics.list()[0].code == "E123");
  CHECK(diagnostics.list()[0].message ==
        "metric `categorical_accuracy` cannot compare targets (None,) with outputs (None, 10)");
}

}  // namespace
}  // namespace meshtrain::testing
