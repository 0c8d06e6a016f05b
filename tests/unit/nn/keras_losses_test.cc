// Every loss and metric against Keras on JAX (tests/golden/keras): values, gradients, the running
// results over three batches, and the names and shapes of the states. In float64, where some of
// Keras' means have a float32 factor, and in float32.
#include <cmath>
#include <set>

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

// Relative to the largest element.
void check_close(const std::vector<double>& found, const std::vector<double>& expected,
                 double tolerance) {
  double scale = 1;
  for (const double v : expected) {
    scale = std::max(scale, std::abs(v));
  }
  check_near(found, expected, tolerance * scale);
}

double tolerance_of(DType dtype) {
  return dtype == DType::kFloat64 ? 2e-7 : 1e-5;
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
  const auto results = run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
    if (c.contains("unreduced")) {
      return std::vector{loss_values(b, loss.class_name, &loss, in[0], in[1], dtype).values};
    }
    const ValueId value = add_loss(b, loss, in[0], in[1], in.size() > 2 ? in[2] : kNone);
    return std::vector{value, gradients(b, value, std::span(in).subspan(1, 1))[0]};
  });
  const double tolerance = tolerance_of(dtype);
  if (c.contains("unreduced")) {
    check_close(numbers(results[0]), c["unreduced"]["values"], tolerance);
    return;
  }
  check_close(numbers(results[0]), {c["value"].get<double>()}, tolerance);
  if (c.contains("gradient")) {
    check_close(numbers(results[1]), c["gradient"]["values"], tolerance);
  }
}

void check_states(const Metric& metric, const Json& expected) {
  REQUIRE(metric.states.size() == expected.size());
  for (size_t s = 0; s < expected.size(); ++s) {
    CHECK(metric.states[s].name == expected[s][0].get<std::string>());
    CHECK(metric.states[s].shape == expected[s][1].get<Shape>());
  }
}

void check_metric_case(const Json& all, const Json& c, DType dtype) {
  const ConfigObject object = object_of(Category::kMetric, c, dtype);
  std::vector<HostTensor> state;
  Metric metric;
  for (size_t i = 0; i < all["batches"].size(); ++i) {
    const int64_t begin = all["batches"][i][0];
    const int64_t end = all["batches"][i][1];
    const HostTensor y = rows(all, c["y_true"], begin, end, dtype);
    const HostTensor p = rows(all, c["y_pred"], begin, end, dtype);
    if (i == 0) {
      Diagnostics diagnostics;
      const auto unknown_batch = [](Shape shape) {
        shape[0] = kUnknownDim;
        return shape;
      };
      metric = make_metric(object, unknown_batch(y.shape()), unknown_batch(p.shape()), dtype,
                           diagnostics);
      REQUIRE(diagnostics.num_errors() == 0);
      check_states(metric, c["states"]);
      for (const Metric::State& s : metric.states) {
        state.emplace_back(s.dtype.value_or(dtype), s.shape);
      }
    }
    std::vector<const HostTensor*> inputs = {&y, &p};
    for (const HostTensor& s : state) {
      inputs.push_back(&s);
    }
    HostTensor weight;
    if (c.contains("sample_weight")) {
      weight = rows(all, c["sample_weight"], begin, end, dtype);
      inputs.push_back(&weight);
    }
    state = run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
      const bool is_weighted = c.contains("sample_weight");
      return metric.update(b, in[0], in[1], is_weighted ? in.back() : kNone,
                           std::span(in).subspan(2, metric.states.size()));
    });
    check_close(metric.result(state), c["results"][i], tolerance_of(dtype));
  }
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
  CHECK(compared == names_of(Category::kLoss, {"crossentropy"}));
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
  CHECK(compared == names_of(Category::kMetric, {"accuracy", "crossentropy"}));
}

}  // namespace
}  // namespace meshtrain::testing
