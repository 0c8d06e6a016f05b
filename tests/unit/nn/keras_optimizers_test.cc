// Every optimizer, regularizer and constraint against Keras in float64
// (tests/reference/optimizers.py).
#include <cmath>
#include <limits>
#include <set>

#include "base/json.h"
#include "from_golden.h"
#include "nn/regularizers.h"
#include "optimizer_testing.h"
#include "support/golden_json.h"

namespace meshtrain::testing {
namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The golden's weights, in the order of the script.
const std::vector<std::pair<std::string, Shape>> kWeights = {{"kernel", {4, 3}},
                                                             {"bias", {5}},
                                                             {"wide", {2, 5}},
                                                             {"embeddings", {3, 2}},
                                                             {"conv", {2, 2, 3, 2}}};

OptimizerState golden_start(const Optimizer& optimizer, const Json& golden) {
  std::vector<std::string> paths;
  std::vector<HostTensor> weights;
  for (const auto& [name, shape] : kWeights) {
    REQUIRE(golden["weights"].at(name).get<Shape>() == shape);
    paths.push_back(name);
    weights.push_back(signed_doubles(paths.size(), shape, 2));
  }
  return start_state(optimizer, std::move(paths), std::move(weights));
}

// Step t (from 1), times `factor`; `odd` goes into the first element of the third.
OptimizerState golden_step(const Optimizer& optimizer, const OptimizerState& state, int64_t t,
                           double factor, double odd = 0) {
  std::vector<HostTensor> grads;
  std::vector<const HostTensor*> pointers;
  for (size_t i = 0; i < kWeights.size(); ++i) {
    grads.push_back(signed_doubles(1000 * (i + 1) + static_cast<uint64_t>(t), kWeights[i].second));
    for (int64_t k = 0; k < grads.back().size(); ++k) {
      grads.back().set(k, grads.back().at(k) * factor);
    }
  }
  if (odd != 0) {
    grads[2].set(0, odd);
  }
  for (const HostTensor& grad : grads) {
    pointers.push_back(&grad);
  }
  return apply_step(optimizer, state, pointers);
}

void check_weights(const OptimizerState& state, const Json& expected, double tolerance) {
  for (size_t i = 0; i < kWeights.size(); ++i) {
    CAPTURE(state.paths[i]);
    check_near(numbers(state.weights[i]), list_of(expected[state.paths[i]]), tolerance);
  }
}

// Keras computes in float32 even here: the rates of schedules, the means of Adafactor, the root of
// an integer in Muon.
double tolerance_of(const std::string& name, const Json& config) {
  const bool scheduled = config.contains("learning_rate") && config["learning_rate"].is_object();
  return scheduled ? 1e-6 : name == "Adafactor" ? 3e-6 : name == "Muon" ? 1e-8 : 1e-9;
}

TEST_CASE("optimizers make Keras' fifty steps on weights of ranks 1 and 2 and 4") {
  const Json golden = test::golden_json("keras/optimizers");
  std::set<std::string> compared;
  for (const Json& c : golden["cases"]) {
    const std::string name = c["class_name"];
    CAPTURE(name);
    CAPTURE(json_text(c["config"]));
    const Optimizer optimizer(object_from_json(Category::kOptimizer, name, c["config"]));
    OptimizerState state = golden_start(optimizer, golden);
    for (int64_t t = 1; t <= 50; ++t) {
      state = golden_step(optimizer, state, t, 1);
      if (c["after"].contains(std::to_string(t))) {
        CAPTURE(t);
        check_weights(state, c["after"][std::to_string(t)], tolerance_of(name, c["config"]));
      }
    }
    if (c.contains("finalized")) {
      for (size_t i = 0; i < kWeights.size(); ++i) {
        check_near(numbers(state.slots[i][0]), list_of(c["finalized"][state.paths[i]]),
                   tolerance_of(name, c["config"]));
      }
    }
    compared.insert(name);
  }
  CHECK(compared == std::set<std::string>{"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW",
                                          "Adamax", "Ftrl", "Lamb", "Lion", "Muon", "Nadam",
                                          "RMSprop", "SGD", "ScheduleFreeAdamW"});
}

TEST_CASE("a loss scale moves and skips steps as Keras' does") {
  const Json golden = test::golden_json("keras/optimizers");
  REQUIRE(golden["scaled"].size() == 4);
  for (const Json& c : golden["scaled"]) {
    const std::string name = c["class_name"];
    CAPTURE(name);
    CAPTURE(json_text(c["config"]));
    const ConfigObject inner = object_from_json(Category::kOptimizer, name, c["config"]);
    ConfigObject outer =
        object_from_json(Category::kOptimizer, "LossScaleOptimizer", c["loss_scale"]);
    outer.args["inner_optimizer"] = Arg(inner);
    const Optimizer optimizer(outer);
    CHECK(optimizer.scales_loss());
    OptimizerState state = golden_start(optimizer, golden);
    for (int64_t t = 1; t <= 50; ++t) {
      CAPTURE(t);
      const double odd = t == 3 ? kInfinity : t == 4 ? std::nan("") : t == 13 ? -kInfinity : 0;
      state = golden_step(optimizer, state, t, state.scalars[2].at(0), odd);
      const size_t index = static_cast<size_t>(t) - 1;
      CHECK(state.scalars[0].at(0) == t);
      CHECK(state.scalars[1].at(0) == c["counters"][index].get<double>());
      CHECK(state.scalars[2].at(0) == c["scales"][index].get<double>());
      CHECK(state.iteration == c["iterations"][index].get<int64_t>());
      if (c["after"].contains(std::to_string(t))) {
        check_weights(state, c["after"][std::to_string(t)], tolerance_of(name, c["config"]));
      }
    }
    CHECK(state.iteration == 47);
  }
}

TEST_CASE("regularizers and their gradients are Keras'") {
  const Json golden = test::golden_json("keras/penalties");
  REQUIRE(golden["cases"].size() >= 20);
  std::set<std::string> compared;
  for (const Json& c : golden["cases"]) {
    compared.insert(c["class_name"]);
    CAPTURE(json_text(c["class_name"]));
    CAPTURE(json_text(c["config"]));
    const ConfigObject regularizer =
        object_from_json(Category::kRegularizer, c["class_name"], c["config"]);
    const HostTensor weight = signed_doubles(c["seed"], c["shape"].get<Shape>(), 2);
    const std::vector<HostTensor> found =
        run({&weight}, [&](Builder& b, const std::vector<ValueId>& in) {
          const ValueId penalty = add_penalty(b, regularizer, in[0]);
          const ValueId slope = gradients(b, penalty, in)[0];
          return std::vector<ValueId>{
              penalty, slope == kNone ? b.constant(0, DType::kFloat64, b.shape(in[0])) : slope};
        });
    // Keras keeps the factors of L1 and OrthogonalRegularizer in float32.
    check_near(numbers(found[0]), {c["value"].get<double>()}, 1e-6);
    check_near(numbers(found[1]), list_of(c["gradient"]), 1e-7);
  }
  CHECK(compared == names_of(Category::kRegularizer));
}

TEST_CASE("constraints project as Keras' do") {
  const Json golden = test::golden_json("keras/penalties");
  REQUIRE(golden["constraints"].size() >= 15);
  std::set<std::string> compared;
  for (const Json& c : golden["constraints"]) {
    compared.insert(c["class_name"]);
    CAPTURE(json_text(c["class_name"]));
    CAPTURE(json_text(c["config"]));
    const ConfigObject constraint =
        object_from_json(Category::kConstraint, c["class_name"], c["config"]);
    const HostTensor weight = signed_doubles(c["seed"], c["shape"].get<Shape>(), 2);
    check_near(run_one({&weight},
                       [&](Builder& b, const std::vector<ValueId>& in) {
                         return add_constraint(b, constraint, in[0]);
                       }),
               list_of(c["result"]), 1e-12);
  }
  CHECK(compared == names_of(Category::kConstraint));
}

}  // namespace
}  // namespace meshtrain::testing
