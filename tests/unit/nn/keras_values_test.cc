// Everything that tests/golden/keras holds and that exists here, in float64 against Keras on JAX:
// values, gradients and the order of updates. tests/reference/README.md states the fields.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "config/catalogue.h"
#include "nn/loss_functions.h"
#include "nn/schedules.h"
#include "nn_testing.h"
#include "support/interpreter.h"
#include "support/splitmix.h"

namespace meshtrain::testing {
namespace {

using Json = nlohmann::json;
using meshtrain::test::splitmix_signed;

constexpr double kTolerance = 1e-10;

Json golden(const std::string& name) {
  std::ifstream file(std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/keras/" + name + ".json");
  REQUIRE(file.good());
  return Json::parse(file);
}

// An argument as the loader types it for the class: whole numbers of float arguments are floats.
ConfigValue argument(const Json& json);

ConfigObject object_of(Category category, const std::string& name, const Json& config) {
  const Kind kind = category == Category::kLayer       ? Kind::kLayer
                    : category == Category::kLoss      ? Kind::kLoss
                    : category == Category::kMetric    ? Kind::kMetric
                    : category == Category::kOptimizer ? Kind::kOptimizer
                    : category == Category::kSchedule  ? Kind::kSchedule
                                                       : Kind::kActivation;
  ConfigObject object;
  if (find_class(category, name) != nullptr) {
    object = make_object(kind, name);
  } else {
    object.class_name = object.spelled = name;  // functions beyond the catalogue
  }
  for (const auto& [key, value] : config.items()) {
    object.args[key] = argument(value);
  }
  return object;
}

ConfigValue argument(const Json& json) {
  ConfigValue value;
  if (json.is_boolean()) {
    value.data = json.get<bool>();
  } else if (json.is_number_integer()) {
    value.data = json.get<int64_t>();
  } else if (json.is_number()) {
    value.data = json.get<double>();
  } else if (json.is_string()) {
    value.data = json.get<std::string>();
  } else if (json.is_array()) {
    ConfigValue::List list;
    for (const Json& entry : json) {
      list.push_back(argument(entry));
    }
    value.data = std::move(list);
  } else if (json.is_object()) {
    value.data = std::make_shared<ConfigObject>(
        object_of(Category::kSchedule, json["class_name"], json["config"]));
  }
  return value;
}

std::vector<double> list(const Json& json) {
  return json.get<std::vector<double>>();
}

HostTensor doubles(const Shape& shape, const std::vector<double>& values) {
  return tensor_of<double>(DType::kFloat64, shape, values);
}

HostTensor tensor(const Json& json) {
  return doubles(json["shape"].get<Shape>(), list(json["values"]));
}

HostTensor signed_tensor(uint64_t seed, const Shape& shape, float scale = 1) {
  HostTensor out(DType::kFloat64, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, splitmix_signed(seed, static_cast<uint64_t>(i), scale));
  }
  return out;
}

// Relative to the largest element. Keras takes some means with a float32 factor even in float64.
void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
  double scale = 1;
  for (const double v : expected) {
    scale = std::max(scale, std::abs(v));
  }
  check_near(found, expected, 1e-7 * scale);
}

// sum(x * signed(seed)): what the goldens differentiate.
ValueId projected(Builder& b, ValueId x, const HostTensor& cotangent, ValueId cotangent_value) {
  REQUIRE(b.shape(x) == cotangent.shape());
  return b.reduce_sum_all(b.mul(x, cotangent_value));
}

TEST_CASE("activations and their gradients are Keras'") {
  const Json json = golden("activations");
  const HostTensor x = doubles({static_cast<int64_t>(json["x"].size())}, list(json["x"]));
  int compared = 0;
  for (const Json& c : json["cases"]) {
    CAPTURE(c["name"]);
    CAPTURE(c["arguments"].dump());
    ConfigValue activation;
    activation.data =
        std::make_shared<ConfigObject>(object_of(Category::kActivation, c["name"], c["arguments"]));
    const auto results = run({&x}, [&](Builder& b, const std::vector<ValueId>& in) {
      const ValueId y = add_activation(b, activation, in[0]);
      return std::vector<ValueId>{y, gradients(b, b.reduce_sum_all(y), in)[0]};
    });
    // Keras' own tanh leaves float64 here.
    const double tolerance = c["name"] == "tanh" ? 1e-7 : kTolerance;
    check_near(numbers(results[0]), list(c["y"]), tolerance);
    for (size_t i = 0; i < c["gradient"].size(); ++i) {
      if (!c["gradient"][i].is_null()) {
        CAPTURE(x.at(static_cast<int64_t>(i)));
        CHECK(std::abs(results[1].at(static_cast<int64_t>(i)) - c["gradient"][i].get<double>()) <=
              tolerance);
        ++compared;
      }
    }
  }
  CHECK(compared > 300);
}

TEST_CASE("activations of rows and their gradients are Keras'") {
  const Json json = golden("activations");
  const HostTensor x = signed_tensor(1, {3, 6}, 4);
  for (const Json& c : json["row_cases"]) {
    CAPTURE(c["name"]);
    CAPTURE(c["arguments"].dump());
    ConfigValue activation;
    activation.data =
        std::make_shared<ConfigObject>(object_of(Category::kActivation, c["name"], c["arguments"]));
    const HostTensor cotangent = signed_tensor(2, c["y"]["shape"].get<Shape>());
    const auto results = run({&x, &cotangent}, [&](Builder& b, const std::vector<ValueId>& in) {
      const ValueId y = add_activation(b, activation, in[0]);
      const ValueId loss = projected(b, y, cotangent, in[1]);
      return std::vector<ValueId>{y, gradients(b, loss, std::span(in).first(1))[0]};
    });
    // Keras' sparsemax takes a wrong threshold where more than one element is left, as in the
    // second row; only the others are compared.
    const size_t skipped = c["name"] == "sparsemax" ? 1 : 3;
    const size_t width = static_cast<size_t>(results[0].size()) / 3;
    for (size_t i = 0; i < 3; ++i) {
      if (i == skipped) {
        continue;
      }
      const auto row = [&](const std::vector<double>& all, size_t columns) {
        return std::vector<double>(all.begin() + i * columns, all.begin() + (i + 1) * columns);
      };
      check_near(row(numbers(results[0]), width), row(list(c["y"]["values"]), width), kTolerance);
      check_near(row(numbers(results[1]), 6), row(list(c["gradient"]["values"]), 6), kTolerance);
    }
  }
}

TEST_CASE("losses and their gradients are Keras'") {
  std::map<std::string, int> compared;
  const Json json = golden("losses");
  for (const Json& c : json["cases"]) {
    const std::string name = c["class_name"];
    if (!is_loss_function(name) || !c.contains("value")) {
      continue;
    }
    CAPTURE(name);
    CAPTURE(c["config"].dump());
    CAPTURE(c.contains("sample_weight"));
    const ConfigObject loss = object_of(Category::kLoss, name, c["config"]);
    const HostTensor y = tensor(c["y_true"]);
    const HostTensor p = tensor(c["y_pred"]);
    std::vector<const HostTensor*> inputs = {&y, &p};
    HostTensor weight;
    if (c.contains("sample_weight")) {
      weight = tensor(c["sample_weight"]);
      inputs.push_back(&weight);
    }
    Diagnostics diagnostics;
    check_loss(loss, y.shape(), p.shape(), diagnostics);
    CHECK(diagnostics.num_errors() == 0);
    const auto results = run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
      const ValueId value = add_loss(b, loss, in[0], in[1], in.size() > 2 ? in[2] : kNone);
      return std::vector<ValueId>{value, gradients(b, value, std::span(in).subspan(1, 1))[0]};
    });
    check_close(numbers(results[0]), {c["value"].get<double>()});
    check_close(numbers(results[1]), list(c["gradient"]["values"]));
    ++compared[name];
  }
  CHECK(compared.size() == 15);
}

// Metrics whose class exists here, in the catalogue or beside it.
bool has_metric(const std::string& name) {
  return find_class(Category::kMetric, name) != nullptr || is_loss_function(name) ||
         name == "LogCoshError";
}

TEST_CASE("metrics follow Keras' over their updates") {
  std::set<std::string> compared;
  const Json json = golden("metrics");
  for (const Json& c : json["cases"]) {
    const std::string name = c["class_name"];
    if (!has_metric(name)) {
      continue;
    }
    CAPTURE(name);
    CAPTURE(c["config"].dump());
    CAPTURE(c["updates"][0].contains("sample_weight"));
    const ConfigObject object = object_of(Category::kMetric, name, c["config"]);
    std::vector<HostTensor> state;
    for (const Json& u : c["updates"]) {
      const HostTensor y = tensor(u["y_true"]);
      const HostTensor p = tensor(u["y_pred"]);
      Diagnostics diagnostics;
      const Metric metric = make_metric(object, y.shape(), p.shape(), DType::kFloat64, diagnostics);
      while (state.size() < metric.states.size()) {
        state.emplace_back(DType::kFloat64, Shape{});
      }
      std::vector<const HostTensor*> inputs = {&y, &p, &state[0], &state[1]};
      HostTensor weight;
      if (u.contains("sample_weight")) {
        weight = tensor(u["sample_weight"]);
        inputs.push_back(&weight);
      }
      state = run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
        return metric.update(b, in[0], in[1], in.size() > 4 ? in[4] : kNone,
                             std::span(in).subspan(2, 2));
      });
      check_close(metric.result(state), list(u["result"]));
    }
    compared.insert(name);
  }
  CHECK(compared.size() >= 17);
}

TEST_CASE("schedules are Keras' at every step") {
  int compared = 0;
  const Json json = golden("schedules");
  for (const Json& c : json["cases"]) {
    CAPTURE(c["class_name"]);
    CAPTURE(c["config"].dump());
    const ConfigObject schedule = object_of(Category::kSchedule, c["class_name"], c["config"]);
    std::vector<double> rates;
    for (size_t step = 0; step < c["values"].size(); ++step) {
      rates.push_back(schedule_rate(schedule, static_cast<int64_t>(step)));
    }
    // Keras computes some of them in float32.
    check_near(rates, list(c["values"]), 2e-7);
    ++compared;
  }
  CHECK(compared == 11);
}

struct Trained {
  std::vector<HostTensor> weights;
  std::vector<std::vector<HostTensor>> slots;
};

// Step t (from 1) of the golden's two weights.
Trained train_step(const Optimizer& optimizer, const Trained& before, int64_t t,
                   double loss_scale) {
  const std::vector<HostTensor> grads = [&] {
    std::vector<HostTensor> out;
    out.push_back(signed_tensor(1000 + static_cast<uint64_t>(t), {4, 3}));
    out.push_back(signed_tensor(2000 + static_cast<uint64_t>(t), {3}));
    // Neither the multiplication of the loss nor the division of its gradients exists here.
    for (HostTensor& grad : out) {
      for (int64_t i = 0; i < grad.size(); ++i) {
        grad.set(i, grad.at(i) / loss_scale);
      }
    }
    return out;
  }();
  const HostTensor iteration = tensor_of<int64_t>(DType::kInt64, {}, {t - 1});
  const HostTensor rate = doubles({}, {optimizer.learning_rate(t - 1)});
  Graph graph;
  Builder b(graph);
  std::map<std::string, const HostTensor*> inputs;
  const auto feed = [&](const HostTensor& value) {
    const std::string name = std::to_string(inputs.size());
    inputs[name] = &value;
    return b.input(name, value.shape(), value.dtype(), false);
  };
  std::vector<Optimizer::WeightUpdate> updates;
  for (size_t i = 0; i < 2; ++i) {
    updates.push_back({feed(before.weights[i]), feed(grads[i]), {}});
    for (const HostTensor& slot : before.slots[i]) {
      updates.back().slots.push_back(feed(slot));
    }
  }
  const ValueId iteration_value = feed(iteration);
  const Optimizer::Result result = optimizer.apply(b, updates, iteration_value, feed(rate),
                                                   t % optimizer.accumulation_steps() == 0);
  const Interpretation run = interpret(graph, inputs, {});
  Trained after;
  for (size_t i = 0; i < 2; ++i) {
    after.weights.push_back(run.values[result.params[i]].clone());
    after.slots.emplace_back();
    for (const ValueId slot : result.slots[i]) {
      after.slots.back().push_back(run.values[slot].clone());
    }
  }
  return after;
}

TEST_CASE("optimizers make Keras' steps in float64") {
  std::set<std::string> compared;
  const Json json = golden("optimizers");
  for (const Json& c : json["cases"]) {
    const std::string name = c["class_name"];
    if (find_class(Category::kOptimizer, name) == nullptr) {
      continue;
    }
    CAPTURE(name);
    CAPTURE(c["config"].dump());
    const Optimizer optimizer(object_of(Category::kOptimizer, name, c["config"]));
    Trained state;
    state.weights.push_back(signed_tensor(1, {4, 3}, 2));
    state.weights.push_back(signed_tensor(2, {3}, 2));
    for (const HostTensor& weight : state.weights) {
      state.slots.emplace_back();
      for (size_t i = 0; i < optimizer.slots().size(); ++i) {
        state.slots.back().emplace_back(DType::kFloat64, weight.shape());
      }
    }
    for (int64_t t = 1; t <= 20; ++t) {
      state = train_step(optimizer, state, t, c["config"].value("loss_scale_factor", 1.0));
      const std::string key = std::to_string(t);
      if (c["after"].contains(key)) {
        CAPTURE(t);
        // With a schedule Keras' rate is float32.
        const double tolerance =
            c["config"].contains("learning_rate") && c["config"]["learning_rate"].is_object()
                ? 1e-6
                : 1e-9;
        check_near(numbers(state.weights[0]), list(c["after"][key]["kernel"]), tolerance);
        check_near(numbers(state.weights[1]), list(c["after"][key]["bias"]), tolerance);
      }
    }
    if (c.contains("finalized")) {
      check_near(numbers(state.slots[0][0]), list(c["finalized"]["kernel"]), 1e-9);
      check_near(numbers(state.slots[1][0]), list(c["finalized"]["bias"]), 1e-9);
    }
    compared.insert(name);
  }
  CHECK(compared == std::set<std::string>{"Adam", "AdamW", "RMSprop", "SGD"});
}

// A model of one layer on inputs of these shapes.
Model layer_model(const Json& c, Diagnostics& diagnostics) {
  std::vector<LayerConfig> layers;
  std::vector<std::string> names;
  for (const Json& input : c["inputs"]) {
    ConfigValue::List sizes;
    for (size_t i = 1; i < input["shape"].size(); ++i) {
      sizes.push_back(argument(input["shape"][i]));
    }
    names.push_back("in" + std::to_string(names.size()));
    layers.push_back(make_layer_config("Input", names.back(), {}));
    layers.back().object.args["shape"].data = std::move(sizes);
  }
  LayerConfig layer = make_layer_config(c["class_name"], "layer", names);
  layer.object = object_of(Category::kLayer, c["class_name"], c["config"]);
  layers.push_back(std::move(layer));
  return Model(make_model_config(std::move(layers)), DType::kFloat64, diagnostics);
}

TEST_CASE("layers and their gradients are Keras'") {
  std::set<std::string> compared;
  const Json json = golden("layers");
  for (const Json& c : json["cases"]) {
    const std::string name = c["class_name"];
    if (find_class(Category::kLayer, name) == nullptr) {
      continue;
    }
    CAPTURE(name);
    CAPTURE(c["config"].dump());
    Diagnostics diagnostics;
    const Model model = layer_model(c, diagnostics);
    REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
    Graph graph;
    Builder b(graph);
    std::vector<HostTensor> fed;
    std::vector<ValueId> inputs, wrt;
    std::map<std::string, const HostTensor*> by_name;
    const bool integers = c.contains("integer_inputs");
    for (const Json& input : c["inputs"]) {
      fed.push_back(integers ? tensor(input).cast(DType::kInt32) : tensor(input));
    }
    fed.push_back(signed_tensor(300, c["output"]["shape"].get<Shape>()));
    for (size_t i = 0; i < fed.size(); ++i) {
      by_name["in" + std::to_string(i)] = &fed[i];
      inputs.push_back(b.input("in" + std::to_string(i), fed[i].shape(), fed[i].dtype(), false));
    }
    const ValueId cotangent = inputs.back();
    inputs.pop_back();
    std::vector<HostTensor> weights;
    std::vector<ValueId> parameters;
    REQUIRE(model.weights().size() == c["weights"].size());
    for (size_t i = 0; i < model.weights().size(); ++i) {
      const Weight& weight = *model.weights()[i];
      CHECK(weight.path == "layer/" + c["weights"][i]["name"].get<std::string>());
      CHECK(weight.shape == c["weights"][i]["shape"].get<Shape>());
      weights.push_back(tensor(c["weights"][i]));
      parameters.push_back(b.parameter(
          b.add_variable({.path = weight.path, .shape = weight.shape, .dtype = DType::kFloat64})));
    }
    const ValueId y = model.apply(b, inputs, parameters, true, kNone, 0, nullptr)[0];
    const ValueId loss = projected(b, y, fed.back(), cotangent);
    wrt = parameters;
    if (!integers) {
      wrt.insert(wrt.end(), inputs.begin(), inputs.end());
    }
    const std::vector<ValueId> slopes = gradients(b, loss, wrt);
    verify(graph);
    std::vector<const HostTensor*> variables;
    for (const HostTensor& weight : weights) {
      variables.push_back(&weight);
    }
    const Interpretation run = interpret(graph, by_name, variables);
    const double tolerance =
        c["config"].value("activation", "") == "tanh" ? 1e-6 : kTolerance;  // as above
    check_near(numbers(run.values[y]), list(c["output"]["values"]), tolerance);
    for (size_t i = 0; i < wrt.size(); ++i) {
      CAPTURE(i);
      const Json& expected = i < parameters.size() ? c["weight_gradients"][i]
                                                   : c["input_gradients"][i - parameters.size()];
      check_near(numbers(run.values[slopes[i]]), list(expected["values"]), tolerance);
    }
    compared.insert(name);
  }
  CHECK(compared.size() >= 20);
}

}  // namespace
}  // namespace meshtrain::testing
