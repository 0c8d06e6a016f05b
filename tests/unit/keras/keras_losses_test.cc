// Every loss and metric against Keras on JAX (tests/golden/keras): values, gradients, the running
// results over three batches, and the names and shapes of the states. On all backends, in float64
// and float32.
#include <cmath>
#include <set>

#include "backends.h"
#include "base/json.h"
#include "from_golden.h"
#include "nn/loss_functions.h"
#include "support/golden_json.h"

namespace meshtrain::testing {
namespace {

using Json = nlohmann::json;

ConfigObject object_of(Category category, const Json& c, DType dtype) {
  ConfigObject object = object_from_json(category, c["class_name"], c["config"]);
  if (c.contains("reduction")) {
    object.args["reduction"] = value_from_json(c["reduction"]);
  }
  if (object.has("dtype")) {
    object.args["dtype"].data = std::string(dtype_name(dtype));
  }
  return object;
}

// Samples [begin, end) of an input of the golden.
HostTensor rows(const Json& all, const std::string& name, int64_t begin, int64_t end, DType dtype) {
  const Json& input = all["inputs"][name];
  Shape shape = input["shape"].get<Shape>();
  const std::vector<double> values = list_of(input["values"]);
  const int64_t row = num_elements(shape) / shape[0];
  shape[0] = end - begin;
  return tensor_of<double>(
      dtype, shape, std::vector<double>(values.begin() + begin * row, values.begin() + end * row));
}

// Of Keras, and of backends among each other, relative to the largest element.
double tolerance_of(DType dtype) {
  return dtype == DType::kFloat64 ? 1e-9 : 1e-5;
}

void check_close(const HostTensor& found, const std::vector<double>& expected, double tolerance) {
  check_near(numbers(found), expected, allowed_error(expected, tolerance));
}

void check_loss_case(const Json& all, const Json& c, DType dtype) {
  const ConfigObject loss = object_of(Category::kLoss, c, dtype);
  const int64_t samples = all["batches"].back()[1];
  const HostTensor y = rows(all, c["y_true"], 0, samples, dtype);
  const HostTensor p = rows(all, c["y_pred"], 0, samples, dtype);
  std::vector<const HostTensor*> inputs = {&y, &p};
  HostTensor weight;
  if (c.contains("sample_weight")) {
    weight = rows(all, c["sample_weight"], 0, samples, dtype);
    inputs.push_back(&weight);
  }
  Diagnostics diagnostics;
  check_loss(loss, y.shape(), p.shape(), diagnostics);
  CHECK(diagnostics.num_errors() == 0);
  const auto make = [&](Builder& b, const std::vector<ValueId>& in) {
    if (c.contains("unreduced")) {
      return std::vector{loss_values(b, loss.class_name, &loss, in[0], in[1], dtype).values};
    }
    const ValueId value = add_loss(b, loss, in[0], in[1], in.size() > 2 ? in[2] : kNone);
    return std::vector{value, gradients(b, value, std::span(in).subspan(1, 1))[0]};
  };
  on_backends(
      tolerance_of(dtype), [&](Backend backend) { return run_once(backend, inputs, {}, make); },
      [&](const Tensors& results) {
        if (c.contains("unreduced")) {
          check_close(results.at("0"), c["unreduced"]["values"], tolerance_of(dtype));
          return;
        }
        check_close(results.at("0"), {c["value"].get<double>()}, tolerance_of(dtype));
        if (c.contains("gradient")) {
          check_close(results.at("1"), c["gradient"]["values"], tolerance_of(dtype));
        }
      });
}

void check_states(const Metric& metric, const Json& expected) {
  REQUIRE(metric.states.size() == expected.size());
  for (size_t s = 0; s < expected.size(); ++s) {
    CHECK(metric.states[s].name == expected[s][0].get<std::string>());
    CHECK(metric.states[s].shape == expected[s][1].get<Shape>());
  }
}

Metric metric_of(const Json& all, const Json& c, const ConfigObject& object, DType dtype) {
  const auto type_of = [&](const char* key) {
    Shape shape = all["inputs"][c[key].get<std::string>()]["shape"].get<Shape>();
    shape[0] = kUnknownDim;
    return shape;
  };
  Diagnostics diagnostics;
  Metric metric = make_metric(object, type_of("y_true"), type_of("y_pred"), dtype, diagnostics);
  REQUIRE(diagnostics.num_errors() == 0);
  return metric;
}

// Updates the metric with the samples from `begin` to `end`.
void update_metric(const Json& all, const Json& c, const Metric& metric, DType dtype, int64_t begin,
                   int64_t end, const std::vector<Variable>& states, GraphRunner& runner) {
  Step step(states);
  const auto batch = [&](const char* key) {
    return step.batch(rows(all, c[key], begin, end, dtype));
  };
  const ValueId y = batch("y_true"), p = batch("y_pred");
  const ValueId weight = c.contains("sample_weight") ? batch("sample_weight") : kNone;
  std::vector<ValueId> values;
  for (size_t s = 0; s < states.size(); ++s) {
    values.push_back(step.b.parameter(static_cast<int>(s)));
  }
  const std::vector<ValueId> updated = metric.update(step.b, y, p, weight, values);
  for (size_t s = 0; s < states.size(); ++s) {
    step.b.update(static_cast<int>(s), updated[s]);
  }
  runner.run(runner.add(std::move(step.graph)), step.inputs);
}

// The metric's value after each of the batches, and of all samples at once, which a mesh can split.
Tensors run_metric(const Json& all, const Json& c, const Metric& metric, DType dtype,
                   Backend backend) {
  std::vector<Variable> states;
  for (const Metric::State& s : metric.states) {
    states.push_back({.path = s.name,
                      .shape = s.shape,
                      .dtype = s.dtype.value_or(dtype),
                      .role = VariableRole::kMetric});
  }
  const std::unique_ptr<GraphRunner> runner = make_runner(backend, states);
  Tensors out;
  const auto reset = [&] {
    for (size_t s = 0; s < states.size(); ++s) {
      runner->write(static_cast<int>(s), HostTensor(states[s].dtype, states[s].shape));
    }
  };
  const auto add = [&](const std::string& name, int64_t begin, int64_t end) {
    update_metric(all, c, metric, dtype, begin, end, states, *runner);
    std::vector<HostTensor> values;
    for (size_t s = 0; s < states.size(); ++s) {
      values.push_back(runner->read(static_cast<int>(s)));
    }
    const std::vector<double> result = metric.result(values);
    out[name] = tensor_of<double>(DType::kFloat64, {static_cast<int64_t>(result.size())}, result);
  };
  const Json& batches = all["batches"];
  reset();
  for (size_t i = 0; i < batches.size(); ++i) {
    add("batch " + std::to_string(i), batches[i][0], batches[i][1]);
  }
  reset();
  add("all", batches[0][0], batches.back()[1]);
  return out;
}

void check_metric_case(const Json& all, const Json& c, DType dtype) {
  const Metric metric = metric_of(all, c, object_of(Category::kMetric, c, dtype), dtype);
  check_states(metric, c["states"]);
  // Keras divides counts in float32.
  const bool is_iou = c["class_name"].get<std::string>().find("IoU") != std::string::npos;
  const double tolerance = is_iou ? std::max(2e-7, tolerance_of(dtype)) : tolerance_of(dtype);
  on_backends(
      tolerance_of(dtype),
      [&](Backend backend) { return run_metric(all, c, metric, dtype, backend); },
      [&](const Tensors& results) {
        for (size_t i = 0; i < c["results"].size(); ++i) {
          CAPTURE(i);
          check_close(results.at("batch " + std::to_string(i)), c["results"][i], tolerance);
        }
        check_close(results.at("all"), c["results"].back(), tolerance);
      });
}

TEST_CASE("every loss and its gradient is Keras'") {
  std::set<std::string> compared;
  const Json all = test::golden_json("keras/losses");
  for (const Json& c : all["cases"]) {
    CAPTURE(json_text(c).substr(0, 200));
    check_loss_case(all, c, DType::kFloat64);
    check_loss_case(all, c, DType::kFloat32);
    compared.insert(c["class_name"]);
  }
  CHECK(compared == names_of(Category::kLoss, {"crossentropy", "Lambda"}));
}

TEST_CASE("every metric follows Keras' over its batches") {
  std::set<std::string> compared;
  const Json all = test::golden_json("keras/metrics");
  for (const Json& c : all["cases"]) {
    CAPTURE(json_text(c).substr(0, 300));
    check_metric_case(all, c, DType::kFloat64);
    check_metric_case(all, c, DType::kFloat32);
    compared.insert(c["class_name"]);
  }
  CHECK(compared ==
        names_of(Category::kMetric, {"accuracy", "BitsPerByte", "crossentropy", "Lambda",
                                     "Perplexity"}));  // the last is Keras Hub's
}

}  // namespace
}  // namespace meshtrain::testing
