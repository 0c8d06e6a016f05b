// Activations and schedules in float64 against Keras on JAX, with gradients.
// tests/reference/README.md states the fields.
#include <cmath>

#include "base/json.h"
#include "from_golden.h"
#include "nn/schedules.h"
#include "support/golden_json.h"

namespace meshtrain::testing {
namespace {

using Json = nlohmann::json;
using meshtrain::test::golden_json;

constexpr double kTolerance = 1e-10;

// sum(x * signed(seed)): what the goldens differentiate.
ValueId projected(Builder& b, ValueId x, const HostTensor& cotangent, ValueId cotangent_value) {
  REQUIRE(b.shape(x) == cotangent.shape());
  return b.reduce_sum_all(b.mul(x, cotangent_value));
}

TEST_CASE("activations and their gradients are Keras'") {
  const Json json = golden_json("keras/activations");
  const HostTensor x = tensor_of<double>(DType::kFloat64, {static_cast<int64_t>(json["x"].size())},
                                         list_of(json["x"]));
  int compared = 0;
  for (const Json& c : json["cases"]) {
    CAPTURE(c["name"]);
    CAPTURE(json_text(c["arguments"]));
    ConfigValue activation;
    activation.data = std::make_shared<ConfigObject>(
        object_from_json(Category::kActivation, c["name"], c["arguments"]));
    const auto results = run({&x}, [&](Builder& b, const std::vector<ValueId>& in) {
      const ValueId y = add_activation(b, activation, in[0]);
      return std::vector<ValueId>{y, gradients(b, b.reduce_sum_all(y), in)[0]};
    });
    // Keras' own tanh leaves float64 here.
    const double tolerance = c["name"] == "tanh" ? 1e-7 : kTolerance;
    check_near(numbers(results[0]), list_of(c["y"]), tolerance);
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
  const Json json = golden_json("keras/activations");
  const HostTensor x = signed_doubles(1, {3, 6}, 4);
  for (const Json& c : json["row_cases"]) {
    CAPTURE(c["name"]);
    CAPTURE(json_text(c["arguments"]));
    ConfigValue activation;
    activation.data = std::make_shared<ConfigObject>(
        object_from_json(Category::kActivation, c["name"], c["arguments"]));
    const HostTensor cotangent = signed_doubles(2, c["y"]["shape"].get<Shape>());
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
      check_near(row(numbers(results[0]), width), row(list_of(c["y"]["values"]), width),
                 kTolerance);
      check_near(row(numbers(results[1]), 6), row(list_of(c["gradient"]["values"]), 6), kTolerance);
    }
  }
}

TEST_CASE("schedules are Keras' at every step") {
  int compared = 0;
  const Json json = golden_json("keras/schedules");
  for (const Json& c : json["cases"]) {
    CAPTURE(c["class_name"]);
    CAPTURE(json_text(c["config"]));
    const ConfigObject schedule =
        object_from_json(Category::kSchedule, c["class_name"], c["config"]);
    std::vector<double> rates;
    for (size_t step = 0; step < c["values"].size(); ++step) {
      rates.push_back(schedule_rate(schedule, static_cast<int64_t>(step)));
    }
    // Keras computes some of them in float32.
    check_near(rates, list_of(c["values"]), 2e-7);
    ++compared;
  }
  CHECK(compared == 22);
}

TEST_CASE("kernels of the STFT initializer are Keras'") {
  const Json json = golden_json("keras/initializers");
  for (const Json& c : json["cases"]) {
    CAPTURE(json_text(c["config"]));
    ConfigValue stft;
    stft.data = std::make_shared<ConfigObject>(
        object_from_json(Category::kInitializer, c["class_name"], c["config"]));
    const Shape shape = c["kernel"]["shape"].get<Shape>();
    const HostTensor kernel = make_initializer(stft)(shape, DType::kFloat64, 1, "k");
    check_near(numbers(kernel), list_of(c["kernel"]["values"]), 2e-6);  // angles in float32 there
  }
  CHECK(json["cases"].size() >= 25);
}

}  // namespace
}  // namespace meshtrain::testing
