// Head and loss as one op: the losses, metrics and weights of the plain way, on every layout of the
// table. A metric that reads whole logits asks for the plain way.
#include <doctest/doctest.h>

#include <cmath>

#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kSequences = 16, kTokens = 6, kClasses = 12, kTrainSteps = 3;

struct HeadModel {
  const char* name;
  std::string head;  // layers behind `norm`
  std::string loss;
};

const std::string kPlainLoss = "{SparseCategoricalCrossentropy: {from_logits: true}}";
const HeadModel kTied = {
    "tied", "    - Call: {layer: tokens, name: logits, call: {reverse: true}}\n", kPlainLoss};
const HeadModel kUntied = {"untied", "    - Dense: {name: logits, units: 12, use_bias: false}\n",
                           kPlainLoss};
const HeadModel kIgnoring = {
    "ignored classes", kTied.head,
    "{SparseCategoricalCrossentropy: {from_logits: true, ignore_class: 3}}"};
const HeadModel kWeighed = {
    "sums", kUntied.head,
    "{SparseCategoricalCrossentropy: {from_logits: true, reduction: mean_with_sample_weight}}"};

std::string yaml_of(const HeadModel& model, bool fused, const std::string& more) {
  return std::string("model:\n  layers:\n") +
         "    - Input: {shape: [6], dtype: int32}\n"
         "    - ReversibleEmbedding: {name: tokens, input_dim: 12, output_dim: 8, mask_zero: "
         "true}\n"
         "    - Dense: {name: hidden, units: 8, activation: tanh}\n"
         "    - LayerNormalization: {name: norm}\n" +
         model.head + "compile:\n  optimizer: {SGD: {learning_rate: 0.5}}\n  loss: " + model.loss +
         "\n  metrics: [accuracy, {Perplexity: {from_logits: true}}, "
         "{BitsPerByte: {from_logits: true, bytes_per_token: 3}}" +
         (fused ? "" : ", {SparseTopKCategoricalAccuracy: {k: 1}}") +
         "]\n  weighted_metrics: [{SparseCategoricalAccuracy: {name: weighted}}]\n" +
         "fit: {batch_size: 8}\n" + more;
}

Dataset token_data() {
  HostTensor x(DType::kInt32, {kSequences, kTokens}), y(DType::kInt32, {kSequences, kTokens});
  HostTensor weight(DType::kFloat32, {kSequences, kTokens});
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    x.set(i, static_cast<double>(splitmix_below(1, at, kClasses)));
    y.set(i, static_cast<double>(splitmix_below(2, at, kClasses)));
    weight.set(i, static_cast<double>(splitmix_below(3, at, 4)));
  }
  Dataset out = dataset_of(std::move(x), std::move(y));
  out.sample_weight = make_rows(std::move(weight));
  return out;
}

struct Trained {
  std::vector<double> losses;
  Logs logs, tested;
  std::vector<std::string> paths;
  std::vector<HostTensor> weights;
  size_t heads = 0, logits = 0;  // nodes of the training graph
};

Trained train(const HeadModel& model, bool fused, const std::string& more) {
  const Config config = config_from(yaml_of(model, fused, more));
  const Dataset data = token_data();
  Engine engine(config, data_spec(data), {.num_workers = 2});
  Trained out;
  for (int64_t step = 0; step < kTrainSteps; ++step) {
    const std::vector<int64_t> rows = rows_of_step(step, 8, kSequences);
    engine.train_step({&data, rows});
    out.losses.push_back(engine.last_loss());
  }
  out.logs = engine.logs();
  engine.reset_metrics();
  engine.test_step({&data, rows_of_step(0, 8, kSequences)});
  out.tested = engine.logs();
  for (const std::string& path : engine.weight_paths()) {
    out.paths.push_back(path);
    out.weights.push_back(engine.read_variable(path));
  }
  const Graph& graph = engine.setup().compile(StepKind::kTrain, 8).graph;
  for (const Node& node : graph.nodes) {
    out.heads += node.op->name.starts_with("linear_cross_entropy") ? 1 : 0;
    for (const ValueId output : node.outputs) {
      const Shape& shape = graph.shape(output);
      out.logits += shape.size() == 3 && shape.back() == kClasses ? 1 : 0;
    }
  }
  return out;
}

void check_close(double a, double b, double tolerance) {
  CHECK(std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b)));
}

void check_equal(const Trained& a, const Trained& b, double tolerance) {
  for (size_t i = 0; i < a.losses.size(); ++i) {
    check_close(a.losses[i], b.losses[i], tolerance);
  }
  for (const auto& [mine, theirs] : {std::pair(&a.logs, &b.logs), {&a.tested, &b.tested}}) {
    for (const auto& [name, value] : *mine) {
      CAPTURE(name);
      const auto found = std::find_if(theirs->begin(), theirs->end(),
                                      [&](const auto& log) { return log.first == name; });
      REQUIRE(found != theirs->end());
      check_close(value, found->second, tolerance);
    }
  }
  REQUIRE(a.paths == b.paths);
  for (size_t w = 0; w < a.weights.size(); ++w) {
    CAPTURE(a.paths[w]);
    for (int64_t i = 0; i < a.weights[w].size(); ++i) {
      check_close(a.weights[w].at(i), b.weights[w].at(i), tolerance);
    }
  }
}

std::string distribution(const std::string& shape, const std::string& rules) {
  return "distribution:\n  type: ModelParallel\n  device_mesh: {shape: " + shape +
         ", axis_names: [batch, model]}\n  layout_map: {" + rules + "}\n";
}

}  // namespace

TEST_CASE("head loss: the numbers of the plain way, and no logits") {
  for (const HeadModel* model : {&kTied, &kUntied, &kIgnoring, &kWeighed}) {
    for (const auto& [dtype, tolerance] : {std::pair("float64", 1e-12), {"float32", 1e-6}}) {
      CAPTURE(model->name);
      CAPTURE(dtype);
      const std::string more = fmt::format("dtype_policy: {}\n", dtype);
      const Trained fused = train(*model, true, more), plain = train(*model, false, more);
      CHECK(fused.heads == 1);  // the gradient has the loss, too
      CHECK(fused.logits == 0);
      CHECK(plain.heads == 0);
      CHECK(plain.logits > 0);
      check_equal(fused, plain, tolerance);
    }
  }
}

TEST_CASE("head loss: 16 bits differ by roundings") {
  const std::string more = "dtype_policy: mixed_bfloat16\n";
  const Trained fused = train(kTied, true, more), plain = train(kTied, false, more);
  CHECK(fused.heads == 1);
  check_equal(fused, plain, 0.02);
}

TEST_CASE("head loss: every layout of the table has the numbers of one device") {
  for (const HeadModel* model : {&kTied, &kUntied, &kIgnoring}) {
    const std::string policy = "dtype_policy: float64\n";
    const Trained one = train(*model, true, policy);
    const bool tied = model->head == kTied.head;
    const std::string by_class =
        tied ? "tokens/embeddings: [model, null]" : "logits/kernel: [null, model]";
    const std::string by_feature =
        tied ? "tokens/embeddings: [null, model]" : "logits/kernel: [model, null]";
    for (const auto& [shape, rules] : {std::pair<std::string, std::string>{"[2, 1]", by_class},
                                       {"[1, 4]", by_class},
                                       {"[2, 2]", by_class},
                                       {"[2, 2]", by_feature},
                                       {"[2, 2]", "hidden/kernel: [null, model]"}}) {
      CAPTURE(model->name);
      CAPTURE(shape);
      CAPTURE(rules);
      const Trained many = train(*model, true, policy + distribution(shape, rules));
      const bool in_parts = rules == by_class && shape != "[2, 1]";
      CHECK(many.heads == (in_parts ? 2 : 1));
      CHECK(many.logits == 0);
      check_equal(many, one, 1e-11);
    }
  }
}

TEST_CASE("head loss: what reads logits otherwise gets them") {
  const auto heads = [](const std::string& from, const std::string& to) {
    std::string yaml = yaml_of(kTied, true, "");
    const size_t at = yaml.find(from);
    REQUIRE(at != std::string::npos);
    yaml.replace(at, from.size(), to);
    const Config config = config_from(yaml);
    const Dataset data = token_data();
    Engine engine(config, data_spec(data), {.num_workers = 1});
    size_t count = 0;
    for (const Node& node : engine.setup().compile(StepKind::kTrain, 8).graph.nodes) {
      count += node.op->name.starts_with("linear_cross_entropy") ? 1 : 0;
    }
    return count;
  };
  CHECK(heads("name: weighted", "name: other") == 1);
  CHECK(heads(kTied.head, "    - Dense: {units: 12}\n") == 0);  // has a bias
  CHECK(heads(kTied.head, "    - Dense: {units: 12, use_bias: false, activation: tanh}\n") == 0);
  CHECK(heads("reverse: true}}\n", "reverse: true}}\n    - Dropout: 0.1\n") == 0);
  CHECK(heads("metrics: [accuracy", "metrics: [sparse_top_k_categorical_accuracy") == 0);
}
