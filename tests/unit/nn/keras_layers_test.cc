// Every layer of tests/golden/keras/layers*.json, from a config by way of the catalogue, in float64
// and float32 against Keras on JAX: output, gradients to the inputs and the weights, and what one
// call makes of the weights that do not train. tests/reference/README.md states the fields.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/json.h"
#include "config/catalogue.h"
#include "config/load.h"
#include "nn/model.h"
#include "support/golden_json.h"
#include "support/interpreter.h"
#include "support/splitmix.h"

namespace meshtrain::testing {
namespace {

using Json = nlohmann::json;
using namespace meshtrain::test;

// JSON is YAML, so the case's arguments go through the loader as a user's would.
ModelConfig model_config(const Json& c, const std::string& policy) {
  Json layers = Json::array();
  Json names = Json::array();
  for (const Json& shape : c["inputs"]) {
    names.push_back("in" + std::to_string(names.size()));
    Json arguments = {{"name", names.back()}, {"shape", Json(shape.begin() + 1, shape.end())}};
    if (c.contains("integers")) {
      arguments["dtype"] = "int32";
    }
    layers.push_back({{"Input", arguments}});
  }
  Json arguments = c["config"];
  arguments["name"] = "layer";
  arguments["inputs"] = names;
  layers.push_back({{c["class_name"].get<std::string>(), arguments}});
  const Json config = {{"dtype_policy", policy},
                       {"model", {{"layers", layers}, {"outputs", "layer"}}},
                       {"compile", {{"loss", "mse"}}}};
  LoadOptions options;
  options.source = std::make_shared<const SourceFile>("case.yaml", json_text(config));
  options.require_data = false;
  return load_config(options).model;
}

HostTensor input_tensor(const Json& c, size_t index, DType dtype) {
  const bool integers = c.contains("integers");
  HostTensor out(integers ? DType::kInt32 : dtype, c["inputs"][index].get<Shape>());
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto k = static_cast<uint64_t>(i);
    out.set(i, integers ? static_cast<double>(
                              splitmix_below(100 + index, k, c["integers"].get<uint64_t>()))
                        : splitmix_signed(100 + index, k, 2));
  }
  return out;
}

HostTensor weight_tensor(const Weight& weight, size_t index) {
  const bool is_variance = weight.path.find("variance") != std::string::npos;
  HostTensor out(weight.dtype, weight.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto k = static_cast<uint64_t>(i);
    out.set(i,
            is_variance ? splitmix_unit(200 + index, k) + 0.5F : splitmix_signed(200 + index, k));
  }
  return out;
}

HostTensor cotangent_tensor(const Shape& shape, DType dtype) {
  HostTensor out(dtype, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, splitmix_signed(300, static_cast<uint64_t>(i)));
  }
  return out;
}

// Every number within `tolerance`, relative to the largest; of large tensors every `step`-th, the
// sum and the length.
void check_tensor(const HostTensor& found, const Json& expected, double tolerance) {
  REQUIRE(found.shape() == expected["shape"].get<Shape>());
  const int64_t step = expected.value("step", int64_t{1});
  const std::vector<double> values = expected["values"].get<std::vector<double>>();
  double scale = 1;
  for (const double v : values) {
    scale = std::max(scale, std::abs(v));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = found.at(static_cast<int64_t>(i) * step);
    CHECK_MESSAGE(std::abs(v - values[i]) <= tolerance * scale, "element ",
                  static_cast<int64_t>(i) * step, " is ", v, ", expected ", values[i]);
  }
  if (step > 1) {
    double sum = 0, square = 0;
    for (int64_t i = 0; i < found.size(); ++i) {
      sum += found.at(i);
      square += found.at(i) * found.at(i);
    }
    const double length = expected["length"].get<double>();
    CHECK(std::abs(sum - expected["sum"].get<double>()) <=
          tolerance * (1 + length * std::sqrt(static_cast<double>(found.size()))));
    CHECK(std::abs(std::sqrt(square) - length) <= tolerance * (1 + length));
  }
}

// A layer's graph for one case, run by the interpreter.
struct CaseRun {
  ValueId output = kNone;
  std::vector<ValueId> weight_slopes, input_slopes, updates;
  Interpretation values;
};

CaseRun run_case(const Json& c, const Model& model, const DTypePolicy& policy) {
  CaseRun out;
  Graph graph;
  Builder b(graph);
  std::vector<HostTensor> fed;
  for (size_t i = 0; i < c["inputs"].size(); ++i) {
    fed.push_back(input_tensor(c, i, policy.floatx()));
  }
  fed.push_back(cotangent_tensor(c["output"]["shape"].get<Shape>(), policy.compute));
  std::vector<ValueId> inputs;
  std::map<std::string, const HostTensor*> by_name;
  for (size_t i = 0; i < fed.size(); ++i) {
    const std::string name = "in" + std::to_string(i);
    inputs.push_back(b.input(name, fed[i].shape(), fed[i].dtype(), false));
    by_name[name] = &fed[i];
  }
  const ValueId cotangent = inputs.back();
  inputs.pop_back();
  std::vector<HostTensor> stored;
  std::vector<ValueId> parameters;
  for (size_t w = 0; w < model.weights().size(); ++w) {
    const Weight& weight = *model.weights()[w];
    stored.push_back(weight_tensor(weight, w));
    parameters.push_back(b.parameter(
        b.add_variable({.path = weight.path, .shape = weight.shape, .dtype = weight.dtype})));
  }
  const bool training = c.contains("call") && c["call"].value("training", false);
  const ValueId step = b.constant(3, DType::kInt64);
  out.output =
      model.apply(b, inputs, parameters, training, step, 0, nullptr, nullptr, &out.updates)[0];
  REQUIRE(b.shape(out.output) == c["output"]["shape"].get<Shape>());
  const ValueId loss = b.reduce_sum_all(b.mul(out.output, cotangent));
  std::vector<ValueId> wrt = parameters;
  if (!c.contains("integers")) {
    wrt.insert(wrt.end(), inputs.begin(), inputs.end());
  }
  const std::vector<ValueId> slopes = gradients(b, loss, wrt);
  const auto weights_end = slopes.begin() + static_cast<std::ptrdiff_t>(parameters.size());
  out.weight_slopes.assign(slopes.begin(), weights_end);
  out.input_slopes.assign(weights_end, slopes.end());
  verify(graph);
  std::vector<const HostTensor*> variables;
  for (const HostTensor& tensor : stored) {
    variables.push_back(&tensor);
  }
  out.values = interpret(graph, by_name, variables);
  return out;
}

// Of 16 bits: the interpreter rounds after each op, XLA keeps float32 within what it fuses but adds
// up bfloat16 as such: its gradient of Conv2DTranspose's bias is 1.4e-2 off the exact sum, which
// ours is.
double tolerance_of(const Json& c, DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 1.5e-2;
    case DType::kFloat16:
      return 2e-3;
    case DType::kFloat32:
      return 1e-5;
    default:
      return c.contains("computed_in") ? 1e-5 : 2e-7;  // some of Keras' own constants are float32
  }
}

void check_case(const Json& c, const std::string& policy_name) {
  const DTypePolicy policy = dtype_policy(policy_name);
  CAPTURE(c["class_name"]);
  CAPTURE(json_text(c["config"]));
  CAPTURE(json_text(c.value("call", Json())));
  CAPTURE(policy_name);
  Diagnostics diagnostics;
  const Model model(model_config(c, policy_name), policy, diagnostics);
  REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  REQUIRE(model.weights().size() == c["weights"].size());
  for (size_t i = 0; i < model.weights().size(); ++i) {
    CHECK(model.weights()[i]->path == "layer/" + c["weights"][i]["name"].get<std::string>());
    CHECK(model.weights()[i]->shape == c["weights"][i]["shape"].get<Shape>());
    CHECK(model.weights()[i]->dtype == policy.variable);
  }
  const CaseRun run = run_case(c, model, policy);
  const double tolerance = tolerance_of(c, policy.compute);
  const auto tensor = [&](ValueId v) -> const HostTensor& { return run.values.values[v]; };
  if (c.contains("output_dtype")) {
    CHECK(dtype_name(tensor(run.output).dtype()) == c["output_dtype"].get<std::string>());
  }
  check_tensor(tensor(run.output), c["output"], tolerance);
  for (size_t i = 0; c.contains("input_gradients") && i < run.input_slopes.size(); ++i) {
    CAPTURE(i);
    check_tensor(tensor(run.input_slopes[i]), c["input_gradients"][i], tolerance);
  }
  for (size_t w = 0; w < model.weights().size(); ++w) {
    const std::string name = c["weights"][w]["name"];
    CAPTURE(name);
    if (c["weight_gradients"].contains(name)) {
      CHECK(model.weights()[w]->trainable);
      check_tensor(tensor(run.weight_slopes[w]), c["weight_gradients"][name], tolerance);
      continue;
    }
    CHECK(!model.weights()[w]->trainable);
    const HostTensor before = weight_tensor(*model.weights()[w], w);
    check_tensor(run.updates[w] == kNone ? before : tensor(run.updates[w]),
                 c["non_trainable_after"][name], tolerance);
  }
}

std::set<std::string> check_file(const std::string& name) {
  std::set<std::string> compared;
  const Json json = golden_json("keras/" + name);
  for (const Json& c : json["cases"]) {
    if (find_class(Category::kLayer, c["class_name"].get<std::string>()) != nullptr) {
      if (c.contains("policy")) {
        check_case(c, c["policy"].get<std::string>());
      } else {
        check_case(c, "float64");
        check_case(c, "float32");
      }
      compared.insert(c["class_name"].get<std::string>());
    }
  }
  return compared;
}

TEST_CASE("core layers and activations are Keras'") {
  CHECK(check_file("layers").size() == 24);
}
TEST_CASE("convolutions are Keras'") {
  CHECK(check_file("layers_convolution").size() == 10);
}
TEST_CASE("pools are Keras'") {
  CHECK(check_file("layers_pooling").size() == 18);
}
TEST_CASE("padding and resizing are Keras'") {
  CHECK(check_file("layers_spatial").size() == 11);
}
TEST_CASE("normalization layers are Keras'") {
  CHECK(check_file("layers_normalization").size() == 12);
}
TEST_CASE("image augmentation by a given amount is Keras'") {
  CHECK(check_file("layers_augmentation").size() == 6);
}
TEST_CASE("layers of mixed_bfloat16 and mixed_float16 are Keras'") {
  CHECK(check_file("layers_mixed").size() == 81);
}

}  // namespace
}  // namespace meshtrain::testing
