// Every layer of tests/golden/keras/layers*.json, from a config by way of the catalogue, in float64
// and float32 on all backends against Keras on JAX: output, gradients to the inputs and the
// weights, and what one call makes of the weights that do not train. tests/reference/README.md
// states the fields.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "backends.h"
#include "base/json.h"
#include "config/catalogue.h"
#include "config/load.h"
#include "nn/model.h"
#include "support/golden_json.h"
#include "support/splitmix.h"
#include "unit/nn/nn_testing.h"

namespace meshtrain::testing {
namespace {

using Json = nlohmann::json;
using namespace meshtrain::test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The limit of an input of integers; 0 for floats.
uint64_t limit_of(const Json& c, size_t index) {
  if (!c.contains("integers")) {
    return 0;
  }
  const Json& limits = c["integers"];
  if (!limits.is_array()) {
    return limits.get<uint64_t>();
  }
  return limits[index].is_null() ? 0 : limits[index].get<uint64_t>();
}

// JSON is YAML, so the case's arguments go through the loader as a user's would.
ModelConfig model_config(const Json& c, const std::string& policy) {
  Json layers = Json::array();
  Json names = Json::array();
  for (const Json& shape : c["inputs"]) {
    names.push_back("in" + std::to_string(names.size()));
    Json arguments = {{"name", names.back()}, {"shape", Json(shape.begin() + 1, shape.end())}};
    if (limit_of(c, names.size() - 1) > 0) {
      arguments["dtype"] = "int32";
    }
    layers.push_back({{"Input", arguments}});
  }
  if (c.contains("masked")) {
    layers.push_back({{"Masking", {{"name", "masked"}, {"inputs", names[0]}}}});
    names[0] = "masked";
  }
  Json arguments = c["config"];
  arguments["name"] = "layer";
  arguments["inputs"] = names;
  if (c.contains("roles")) {
    arguments["inputs"] = Json::object();
    for (size_t i = 0; i < names.size(); ++i) {
      arguments["inputs"][c["roles"][i].get<std::string>()] = names[i];
    }
  }
  if (c.contains("call") && !c["call"].contains("training")) {
    arguments["call"] = c["call"];
  }
  layers.push_back({{c["class_name"].get<std::string>(), arguments}});
  std::string output = "layer";
  if (c.contains("outputs")) {  // all of them, flattened and joined
    Json flat = Json::array();
    for (const Json& name : c["outputs"]) {
      const std::string own = name.get<std::string>();
      flat.push_back("flat_" + own);
      layers.push_back(
          {{"Flatten",
            {{"name", flat.back()}, {"inputs", own.empty() ? "layer" : "layer." + own}}}});
    }
    output = "joined";
    layers.push_back({{"Concatenate", {{"name", output}, {"inputs", flat}}}});
  }
  const Json config = {{"dtype_policy", policy},
                       {"model", {{"layers", layers}, {"outputs", output}}},
                       {"compile", {{"loss", "mse"}}}};
  LoadOptions options;
  options.source = std::make_shared<const SourceFile>("case.yaml", json_text(config));
  options.require_data = false;
  return load_config(options).model;
}

// Whether element i lies in a step that Masking leaves out: each third one, counted on by two from
// sample to sample.
bool is_left_out(const Json& c, size_t index, int64_t i) {
  if (!c.contains("masked") || index > 0) {
    return false;
  }
  const Shape shape = c["inputs"][index].get<Shape>();
  const int64_t step = i / shape[2];
  return (2 * (step / shape[1]) + step % shape[1]) % 3 == 0;
}

HostTensor input_tensor(const Json& c, size_t index, DType dtype) {
  const uint64_t limit = limit_of(c, index);
  HostTensor out(limit > 0 ? DType::kInt32 : dtype, c["inputs"][index].get<Shape>());
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto k = static_cast<uint64_t>(i);
    out.set(i, limit > 0 ? static_cast<double>(splitmix_below(100 + index, k, limit))
               : is_left_out(c, index, i) ? 0
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
  const double allowed = allowed_error(values, tolerance);
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = found.at(static_cast<int64_t>(i) * step);
    CHECK_MESSAGE(std::abs(v - values[i]) <= allowed, "element ", static_cast<int64_t>(i) * step,
                  " is ", v, ", expected ", values[i]);
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

std::string gradient_name(size_t input) {
  return "gradient of input " + std::to_string(input);
}

// The output, the gradients of the inputs, and by path the gradients of the weights or, of those
// that do not train, their new values.
Tensors run_case(const Json& c, const Model& model, const DTypePolicy& policy, Backend backend) {
  std::vector<Variable> variables;
  for (const Weight* weight : model.weights()) {
    variables.push_back({.path = weight->path,
                         .shape = weight->shape,
                         .dtype = weight->dtype,
                         .trainable = weight->trainable});
  }
  const std::unique_ptr<GraphRunner> runner = make_runner(backend, variables);
  Step step(variables);
  Builder& b = step.b;
  std::vector<ValueId> inputs, parameters;
  for (size_t i = 0; i < c["inputs"].size(); ++i) {
    inputs.push_back(step.batch(input_tensor(c, i, policy.floatx())));
  }
  const ValueId cotangent =
      step.batch(cotangent_tensor(c["output"]["shape"].get<Shape>(), policy.compute));
  for (size_t w = 0; w < variables.size(); ++w) {
    runner->write(static_cast<int>(w), weight_tensor(*model.weights()[w], w));
    parameters.push_back(b.parameter(static_cast<int>(w)));
  }
  const bool training = c.contains("call") && c["call"].value("training", false);
  std::vector<ValueId> updates, penalties;
  const ValueId output =
      model.apply(b, inputs, parameters, training, b.constant(3, DType::kInt64), 0, nullptr,
                  c.contains("added_loss") ? &penalties : nullptr, &updates)[0];
  b.output("output", output);
  std::vector<ValueId> wrt = parameters;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (limit_of(c, i) == 0) {
      wrt.push_back(inputs[i]);
    }
  }
  ValueId loss = b.reduce_sum_all(b.mul(output, cotangent));
  if (!penalties.empty()) {
    ValueId added = penalties[0];
    for (size_t i = 1; i < penalties.size(); ++i) {
      added = b.add(added, penalties[i]);
    }
    b.output("added_loss", added);
    loss = b.add(loss, added);
  }
  const std::vector<ValueId> slopes = gradients(b, loss, wrt);
  for (size_t i = parameters.size(); i < wrt.size(); ++i) {
    if (slopes[i] != kNone) {  // else only the shape of the input counts
      b.output(gradient_name(i - parameters.size()), slopes[i]);
    }
  }
  for (size_t w = 0; w < variables.size(); ++w) {
    if (variables[w].trainable && slopes[w] != kNone) {
      b.output(variables[w].path, slopes[w]);
    } else if (updates[w] != kNone) {
      b.update(static_cast<int>(w), updates[w]);
    }
  }
  Tensors out = runner->run(runner->add(std::move(step.graph)), step.inputs);
  for (size_t w = 0; w < variables.size(); ++w) {
    if (!variables[w].trainable) {
      out[variables[w].path] = runner->read(static_cast<int>(w));
    }
  }
  return out;
}

// Of 16 bits: the interpreter rounds after each op, XLA keeps float32 within what it fuses but adds
// up bfloat16 as such: its gradient of Conv2DTranspose's bias is 1.4e-2 off the exact sum, which
// ours is.
// Recurrent layers: Keras rounds the cotangent of the state in each step. With inputs and weights
// that bfloat16 has, its gradient of SimpleRNN's input is 2.4e-2 of the largest off float32's.
double tolerance_of(const Json& c, DType dtype) {
  static const std::set<std::string> kRecurrent = {"SimpleRNN",       "RNN",        "Bidirectional",
                                                   "TimeDistributed", "ConvLSTM1D", "ConvLSTM2D",
                                                   "ConvLSTM3D",      "LSTM",       "GRU"};
  switch (dtype) {
    case DType::kBFloat16:
      return kRecurrent.contains(c["class_name"].get<std::string>()) ? 4e-2 : 1.5e-2;
    case DType::kFloat16:
      return 2e-3;
    case DType::kFloat32:
      return 1e-5;
    default:
      return c.contains("computed_in")                                 ? 1e-5
             : kRecurrent.contains(c["class_name"].get<std::string>()) ? 1e-12
                                                                       : 1e-9;
  }
}

// What nothing depends on has no gradient here, and zeros in Keras.
void check_gradient(const Tensors& results, const std::string& name, const Json& expected,
                    double tolerance) {
  const auto found = results.find(name);
  if (found != results.end()) {
    check_tensor(found->second, expected, tolerance);
    return;
  }
  for (const Json& value : expected["values"]) {
    CHECK_MESSAGE(value.get<double>() == 0, name, " is no result");
  }
}

void check_golden(const Json& c, const Model& model, const Tensors& results, double tolerance) {
  if (c.contains("output_dtype")) {
    CHECK(dtype_name(results.at("output").dtype()) == c["output_dtype"].get<std::string>());
  }
  check_tensor(results.at("output"), c["output"], tolerance);
  if (c.contains("added_loss")) {
    const double expected = c["added_loss"].get<double>();
    const auto found = results.find("added_loss");
    CHECK(std::abs((found == results.end() ? 0 : found->second.at(0)) - expected) <= tolerance);
  }
  const Json slopes = c.value("input_gradients", Json::array());
  for (size_t i = 0; i < slopes.size(); ++i) {
    CAPTURE(i);
    check_gradient(results, gradient_name(i), slopes[i], tolerance);
  }
  for (size_t w = 0; w < model.weights().size(); ++w) {
    const std::string name = c["weights"][w]["name"];
    CAPTURE(name);
    const bool trains = c["weight_gradients"].contains(name);
    CHECK(model.weights()[w]->trainable == trains);
    check_gradient(results, model.weights()[w]->path,
                   trains ? c["weight_gradients"][name] : c["non_trainable_after"][name],
                   tolerance);
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
  const double tolerance = tolerance_of(c, policy.compute);
  // A fusion keeps float32 between ops of 16 bits, so brightness is clipped at other elements than
  // in the interpreter, and values are in other bins.
  const bool clips_elsewhere =
      dtype_size(policy.compute) == 2 &&
      (c["class_name"] == "RandomBrightness" || c["class_name"] == "Equalization");
  on_backends(
      policy.compute == DType::kFloat64 ? 1e-9
      : clips_elsewhere                 ? kInfinity
                                        : tolerance,
      [&](Backend backend) { return run_case(c, model, policy, backend); },
      [&](const Tensors& results) { check_golden(c, model, results, tolerance); });
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

TEST_CASE("every layer of the catalogue has a golden" * doctest::test_suite("host")) {
  // Call and Repeat stand for other layers; cells are parts of RNN; RandomCrop draws where it
  // crops; the mask of Masking is in nn/masks_test.cc; MergeSteps and SplitSteps go together, in
  // the golden models `hierarchy` and `frames`.
  std::set<std::string> seen = {"Call",       "Input",      "Masking",        "RandomCrop",
                                "Repeat",     "MergeSteps", "SimpleRNNCell",  "LSTMCell",
                                "SplitSteps", "GRUCell",    "StackedRNNCells"};
  for (const char* name :
       {"layers", "layers_convolution", "layers_pooling", "layers_spatial", "layers_normalization",
        "layers_augmentation", "layers_attention", "layers_mixture", "layers_recurrent",
        "layers_wrappers", "layers_operations"}) {
    const Json json = golden_json(std::string("keras/") + name);
    for (const Json& c : json["cases"]) {
      seen.insert(c["class_name"].get<std::string>());
    }
  }
  for (const std::string& name : class_names(Category::kLayer)) {
    CHECK_MESSAGE(seen.contains(name), "no golden of ", name);
  }
}

TEST_CASE("core layers and activations are Keras'") {
  CHECK(check_file("layers").size() == 32);
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
  CHECK(check_file("layers_normalization").size() == 13);
}
TEST_CASE("image augmentation by a given amount is Keras'") {
  CHECK(check_file("layers_augmentation").size() == 25);
}
TEST_CASE("layers of attention and positions are Keras' and Keras Hub's") {
  CHECK(check_file("layers_attention").size() == 13);
}
TEST_CASE("mixtures of experts are Keras Hub's, and with capacities what a loop over steps gives") {
  CHECK(check_file("layers_mixture").size() == 1);
}
TEST_CASE("recurrent layers are Keras'") {
  CHECK(check_file("layers_recurrent").size() == 9);
}
TEST_CASE("layers around layers, further outputs and masks of steps are Keras'") {
  CHECK(check_file("layers_wrappers").size() == 8);
}
TEST_CASE("expressions are what Python makes of them with keras.ops") {
  CHECK(check_file("layers_operations").size() == 1);
}
TEST_CASE("layers of mixed_bfloat16 and mixed_float16 are Keras'") {
  CHECK(check_file("layers_mixed").size() == 113);
}

}  // namespace
}  // namespace meshtrain::testing
