// What the programs of a step change.
#include "engine/step_graph.h"

#include <doctest/doctest.h>

#include <set>

#include "support/engine_case.h"

using namespace meshtrain;

namespace {

constexpr const char* kConfig = R"(
model:
  layers:
    - Input: {shape: [3]}
    - Dense: {name: dense, units: 2}
    - BatchNormalization: {name: moving, TRAINABLE}
compile: {loss: mse, optimizer: {SGD: {gradient_accumulation_steps: 2}}}
)";

// The programs of a config for such data, and what was wrong with it.
struct Built {
  Built(Config the_config, const DataSpec& data)
      : config(std::move(the_config)),
        model(config.model, DType::kFloat32, diagnostics),
        optimizer(config.compile.optimizer),
        graphs(config, model, optimizer, data, DType::kFloat32, {}, diagnostics) {}
  Config config;
  Diagnostics diagnostics;
  Model model;
  Optimizer optimizer;
  StepGraphs graphs;
};

DataSpec data_of(const Shape& input, const Shape& target) {
  DataSpec data;
  data.inputs.push_back({input, DType::kFloat32});
  data.targets.push_back({target, DType::kFloat32});
  return data;
}

// kConfig with this argument of its second layer.
std::string config_with(const std::string& argument) {
  std::string text = kConfig;
  return text.replace(text.find("TRAINABLE"), 9, argument);
}

struct Programs {
  Graph train, accumulate, test, predict;
};

Programs programs_of(const std::string& trainable) {
  const Built built(test::config_from(config_with("trainable: " + trainable)), data_of({3}, {2}));
  const auto& [config, diagnostics, model, optimizer, graphs] = built;
  REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  return {graphs.train(4, true), graphs.train(4, false), graphs.test(4), graphs.predict(4)};
}

bool changes(const Graph& graph, std::string_view path) {
  for (const Update& update : graph.updates) {
    if (graph.variables[static_cast<size_t>(update.variable)].path == path) {
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("Moving averages follow every training step and nothing else") {
  const Programs programs = programs_of("true");
  for (const char* path : {"moving/moving_mean", "moving/moving_variance"}) {
    CHECK(changes(programs.train, path));
    CHECK(changes(programs.accumulate, path));  // also where weights wait for more gradients
    CHECK(!changes(programs.test, path));
    CHECK(!changes(programs.predict, path));
  }
  CHECK(changes(programs.train, "dense/kernel"));
  CHECK(!changes(programs.accumulate, "dense/kernel"));
}

TEST_CASE("A layer that does not train changes nothing") {
  const Programs programs = programs_of("false");
  for (const char* name : {"gamma", "beta", "moving_mean", "moving_variance"}) {
    CHECK(!changes(programs.train, "moving/" + std::string(name)));
  }
}

TEST_CASE("What computes a loss says that there is none") {
  const Built built(test::config_from(config_with("trainable: true"), {"compile.loss=null"}),
                    data_of({3}, {2}));
  const StepGraphs& graphs = built.graphs;
  CHECK_THROWS_WITH_AS(graphs.train(4, true), doctest::Contains("`loss` of `compile` is missing"),
                       ConfigError);
  CHECK_THROWS_AS(graphs.test(4), ConfigError);
  CHECK_NOTHROW(graphs.predict(4));
}

TEST_CASE("Sample weights that do not fit a loss or a weighted metric are said before a step") {
  const auto problems = [](const std::string& compile, const Shape& weight) {
    const Config config = test::config_from(
        "model:\n  layers:\n    - Input: {shape: [2, 4]}\n    - Dense: {units: 3}\ncompile: {" +
        compile + "}\n");
    DataSpec data = data_of({2, 4}, {2, 3});
    data.has_sample_weight = true;
    data.sample_weight_shape = weight;
    const Built built(config, data);
    std::string out;
    for (const Diagnostic& problem : built.diagnostics.list()) {
      out += problem.code + " " + problem.message;
    }
    if (out.empty()) {
      built.graphs.train(4, true);
    }
    return out;
  };
  const std::string cosine = "loss: mse, weighted_metrics: [{CosineSimilarity: {axis: 1}}]";
  CHECK(problems(cosine, {2}) ==
        "E123 sample weights (None, 2) do not fit the values of metric `cosine_similarity` of an "
        "output (None, 2, 3)");
  CHECK(problems(cosine, {}) == "");
  CHECK(problems("loss: mse, metrics: [{CosineSimilarity: {axis: 1}}]", {2}) == "");
  CHECK(problems("loss: mse, weighted_metrics: [mse, AUC, acc, Mean, Sum]", {2}) == "");
  CHECK(problems("loss: mse", {3}) ==
        "E123 sample weights (None, 3) do not fit the values of MeanSquaredError of an output "
        "(None, 2, 3)");
}

TEST_CASE("The word crossentropy as a loss and the name Accuracy go by the shapes") {
  const Config config = test::config_from(
      "model:\n  layers:\n    - Input: {shape: [4]}\n    - Dense: {units: 3, activation: "
      "softmax}\ncompile: {loss: crossentropy, metrics: [Accuracy]}\n");
  for (const Shape& target : {Shape{}, Shape{1}, Shape{3}}) {
    const Built built(config, data_of({4}, target));
    const auto& [unused, diagnostics, model, optimizer, graphs] = built;
    REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
    CHECK(graphs.metrics().back().metric.name == "Accuracy");
    CHECK_NOTHROW(graphs.train(4, true));
  }
}
