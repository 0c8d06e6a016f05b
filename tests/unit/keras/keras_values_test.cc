// Activations with gradients in float64 on all backends, schedules and initializers, against Keras
// on JAX.
// tests/reference/README.md states the fields.
#include <cmath>

#include "backends.h"
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
    on_backends(
        1e-9,
        [&](Backend backend) {
          return run_once(backend, {&x}, {}, [&](Builder& b, const std::vector<ValueId>& in) {
            const ValueId y = add_activation(b, activation, in[0]);
            return std::vector<ValueId>{y, gradients(b, b.reduce_sum_all(y), in)[0]};
          });
        },
        [&](const Tensors& results) {
          check_near(numbers(results.at("0")), list_of(c["y"]), kTolerance);
          for (size_t i = 0; i < c["gradient"].size(); ++i) {
            const auto place = static_cast<int64_t>(i);
            CAPTURE(x.at(place));
            CHECK(std::abs(results.at("1").at(place) - c["gradient"][i].get<double>()) <=
                  kTolerance);
            ++compared;
          }
        });
  }
  CHECK(compared > 900);
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
    const auto check = [&](const Tensors& results) {
      // Keras' sparsemax takes a wrong threshold where more than one element is left, as in the
      // second row; only the others are compared.
      const size_t skipped = c["name"] == "sparsemax" ? 1 : 3;
      for (const auto& [name, key] : {std::pair{"0", "y"}, std::pair{"1", "gradient"}}) {
        const std::vector<double> found = numbers(results.at(name));
        const std::vector<double> expected = list_of(c[key]["values"]);
        const auto width = static_cast<std::ptrdiff_t>(expected.size() / 3);
        REQUIRE(found.size() == expected.size());
        for (std::ptrdiff_t i = 0; i < 3; ++i) {
          const auto row = [&](const std::vector<double>& all) {
            return std::vector<double>(all.begin() + i * width, all.begin() + (i + 1) * width);
          };
          if (static_cast<size_t>(i) != skipped) {
            check_near(row(found), row(expected), kTolerance);
          }
        }
      }
    };
    on_backends(
        1e-9,
        [&](Backend backend) {
          return run_once(
              backend, {&x, &cotangent}, {}, [&](Builder& b, const std::vector<ValueId>& in) {
                const ValueId y = add_activation(b, activation, in[0]);
                const ValueId loss = projected(b, y, cotangent, in[1]);
                return std::vector<ValueId>{y, gradients(b, loss, std::span(in).first(1))[0]};
              });
        },
        check);
  }
}

TEST_CASE("schedules are Keras' at every step" * doctest::test_suite("host")) {
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
    check_near(rates, list_of(c["values"]), kTolerance);
    ++compared;
  }
  CHECK(compared == 22);
}

TEST_CASE("kernels of the STFT initializer are Keras'" * doctest::test_suite("host")) {
  const Json json = golden_json("keras/initializers");
  for (const Json& c : json["cases"]) {
    CAPTURE(json_text(c["config"]));
    ConfigValue stft;
    stft.data = std::make_shared<ConfigObject>(
        object_from_json(Category::kInitializer, c["class_name"], c["config"]));
    const Shape shape = c["kernel"]["shape"].get<Shape>();
    const HostTensor kernel = make_initializer(stft)(shape, DType::kFloat64, 1, "k");
    check_near(numbers(kernel), list_of(c["kernel"]["values"]), kTolerance);
  }
  CHECK(json["cases"].size() >= 25);
}

}  // namespace
}  // namespace meshtrain::testing
