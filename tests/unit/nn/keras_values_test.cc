// Activations and schedules in float64 against Keras on JAX, with gradients.
// tests/reference/README.md states the fields.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "config/catalogue.h"
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

HostTensor signed_tensor(uint64_t seed, const Shape& shape, float scale = 1) {
  HostTensor out(DType::kFloat64, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, splitmix_signed(seed, static_cast<uint64_t>(i), scale));
  }
  return out;
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
  CHECK(compared == 22);
}

}  // namespace
}  // namespace meshtrain::testing
