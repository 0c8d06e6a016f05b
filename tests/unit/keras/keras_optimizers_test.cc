// Every optimizer, regularizer and constraint against Keras in float64, on all backends
// (tests/reference/optimizers.py). Optimizers also run in float32.
#include <cmath>
#include <limits>
#include <set>

#include "backends.h"
#include "base/json.h"
#include "from_golden.h"
#include "nn/regularizers.h"
#include "optimizer_run.h"
#include "support/golden_json.h"

namespace meshtrain::testing {
namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string weight_name(const std::string& step, size_t weight) {
  return "after " + step + ": " + kWeights[weight].first;
}

void add_weights(const OptimizerRun& run, int64_t t, const Json& c, Tensors& out) {
  if (c["after"].contains(std::to_string(t))) {
    for (size_t i = 0; i < kWeights.size(); ++i) {
      out[weight_name(std::to_string(t), i)] = run.weight(i);
    }
  }
}

// Relative to the largest element.
double tolerance_of(DType dtype) {
  return dtype == DType::kFloat64 ? 1e-9 : 1e-5;
}

void check_weights(const Tensors& results, const Json& c, DType dtype) {
  const auto check = [&](const std::string& name, const Json& json) {
    CAPTURE(name);
    const std::vector<double> expected = list_of(json);
    check_near(numbers(results.at(name)), expected, allowed_error(expected, tolerance_of(dtype)));
  };
  for (size_t i = 0; i < kWeights.size(); ++i) {
    for (const auto& [step, weights] : c["after"].items()) {
      check(weight_name(step, i), weights[kWeights[i].first]);
    }
    if (c.contains("finalized")) {
      check("finalized " + kWeights[i].first, c["finalized"][kWeights[i].first]);
    }
  }
}

TEST_CASE("optimizers make Keras' fifty steps on weights of ranks 1 and 2 and 4") {
  const Json golden = test::golden_json("keras/optimizers");
  for (const auto& [name, shape] : kWeights) {
    REQUIRE(golden["weights"].at(name).get<Shape>() == shape);
  }
  std::set<std::string> compared;
  for (const Json& c : golden["cases"]) {
    const std::string name = c["class_name"];
    CAPTURE(name);
    CAPTURE(json_text(c["config"]));
    const Optimizer optimizer(object_from_json(Category::kOptimizer, name, c["config"]));
    const auto run = [&](DType dtype, Backend backend) {
      OptimizerRun run(optimizer, dtype, backend);
      Tensors out;
      for (int64_t t = 1; t <= 50; ++t) {
        run.step(t, 1);
        add_weights(run, t, c, out);
      }
      for (size_t i = 0; c.contains("finalized") && i < kWeights.size(); ++i) {
        out["finalized " + kWeights[i].first] = run.first_slot(i);
      }
      return out;
    };
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      on_backends(
          tolerance_of(dtype), [&](Backend backend) { return run(dtype, backend); },
          [&](const Tensors& results) { check_weights(results, c, dtype); });
    }
    compared.insert(name);
  }
  for (const std::string& optimizer : class_names(Category::kOptimizer)) {
    CHECK_MESSAGE((compared.contains(optimizer) || optimizer == "LossScaleOptimizer"), optimizer);
  }
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
    const auto run = [&](Backend backend) {
      OptimizerRun run(optimizer, DType::kFloat64, backend);
      Tensors out;
      for (int64_t t = 1; t <= 50; ++t) {
        CAPTURE(t);
        const double odd = t == 3 ? kInfinity : t == 4 ? std::nan("") : t == 13 ? -kInfinity : 0;
        run.step(t, run.scalar(2).at(0), odd);
        const size_t index = static_cast<size_t>(t) - 1;
        CHECK(run.scalar(0).at(0) == t);
        CHECK(run.scalar(1).at(0) == c["counters"][index].get<double>());
        CHECK(run.scalar(2).at(0) == c["scales"][index].get<double>());
        CHECK(run.iteration() == c["iterations"][index].get<int64_t>());
        add_weights(run, t, c, out);
      }
      CHECK(run.iteration() == 47);
      return out;
    };
    on_backends(1e-9, run,
                [&](const Tensors& results) { check_weights(results, c, DType::kFloat64); });
  }
}

TEST_CASE("regularizers and their gradients are Keras'") {
  const Json golden = test::golden_json("keras/penalties");
  REQUIRE(golden["cases"].size() >= 20);
  std::set<std::string> compared;
  for (const Json& c : golden["cases"]) {
    CAPTURE(json_text(c["class_name"]));
    CAPTURE(json_text(c["config"]));
    compared.insert(c["class_name"]);
    const ConfigObject regularizer =
        object_from_json(Category::kRegularizer, c["class_name"], c["config"]);
    const HostTensor weight = signed_doubles(c["seed"], c["shape"].get<Shape>(), 2);
    const auto make = [&](Builder& b, const std::vector<ValueId>& in) {
      const ValueId penalty = add_penalty(b, regularizer, in[0]);
      const ValueId slope = gradients(b, penalty, in)[0];
      return std::vector<ValueId>{
          penalty, slope == kNone ? b.constant(0, DType::kFloat64, b.shape(in[0])) : slope};
    };
    on_backends(
        1e-9, [&](Backend backend) { return run_once(backend, {}, {&weight}, make); },
        [&](const Tensors& results) {
          // Keras keeps the factors of L1 and OrthogonalRegularizer in float32.
          check_near(numbers(results.at("0")), {c["value"].get<double>()}, 1e-6);
          check_near(numbers(results.at("1")), list_of(c["gradient"]), 1e-7);
        });
  }
  CHECK(compared == names_of(Category::kRegularizer));
}

TEST_CASE("constraints project as Keras' do") {
  const Json golden = test::golden_json("keras/penalties");
  REQUIRE(golden["constraints"].size() >= 15);
  std::set<std::string> compared;
  for (const Json& c : golden["constraints"]) {
    CAPTURE(json_text(c["class_name"]));
    CAPTURE(json_text(c["config"]));
    compared.insert(c["class_name"]);
    const ConfigObject constraint =
        object_from_json(Category::kConstraint, c["class_name"], c["config"]);
    const HostTensor weight = signed_doubles(c["seed"], c["shape"].get<Shape>(), 2);
    on_backends(
        1e-9,
        [&](Backend backend) {
          return run_once(backend, {}, {&weight}, [&](Builder& b, const std::vector<ValueId>& in) {
            return std::vector{add_constraint(b, constraint, in[0])};
          });
        },
        [&](const Tensors& results) {
          check_near(numbers(results.at("0")), list_of(c["result"]), 1e-12);
        });
  }
  CHECK(compared == names_of(Category::kConstraint));
}

}  // namespace
}  // namespace meshtrain::testing
