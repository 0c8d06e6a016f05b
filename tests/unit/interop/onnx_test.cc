// ONNX files: what every runtime checks, and the ops of a few models. tests/reference/onnx_check.py
// compares numbers with onnxruntime.
#include <doctest/doctest.h>
#include <onnx.pb.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "interop/onnx/export_onnx.h"
#include "keras_files.h"

namespace meshtrain {
namespace {

onnx::ModelProto exported(const std::string& yaml) {
  const Config config = test::config_of(yaml);
  const Setup setup(config, nullptr);
  std::vector<NamedTensor> weights;
  for (const Weight* weight : setup.model().weights()) {
    weights.push_back({weight->path, HostTensor(weight->dtype, weight->shape)});
  }
  const std::string image = onnx_image(setup, weights);
  onnx::ModelProto out;
  REQUIRE(out.ParseFromString(image));
  return out;
}

// Every tensor has one origin, which stands before its uses; bodies of loops see what is outside.
void check_graph(const onnx::GraphProto& graph, std::set<std::string> known) {
  std::set<std::string> nodes;
  const auto define = [&](const std::string& name) {
    CHECK_MESSAGE(!name.empty(), "a tensor without a name");
    CHECK_MESSAGE(known.insert(name).second, name, " is there twice");
  };
  for (const auto& input : graph.input()) {
    define(input.name());
  }
  for (const auto& tensor : graph.initializer()) {
    define(tensor.name());
    int64_t elements = 1;
    for (const int64_t size : tensor.dims()) {
      elements *= size;
    }
    CHECK((elements == 0 || tensor.raw_data().size() % static_cast<size_t>(elements) == 0));
  }
  for (const auto& node : graph.node()) {
    CHECK_MESSAGE(nodes.insert(node.name()).second, node.name(), " is there twice");
    for (const std::string& input : node.input()) {
      CHECK_MESSAGE(known.contains(input), node.name(), " takes ", input);
    }
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) {
        check_graph(attribute.g(), known);
      }
    }
    for (const std::string& output : node.output()) {
      define(output);
    }
  }
  CHECK(graph.output_size() > 0);
  for (const auto& output : graph.output()) {
    CHECK_MESSAGE(known.contains(output.name()), output.name());
  }
}

std::vector<std::string> ops_of(const onnx::GraphProto& graph) {
  std::vector<std::string> out;
  for (const auto& node : graph.node()) {
    if (!starts_with(node.name(), "batch/") && !starts_with(node.name(), "output/")) {
      out.push_back(node.op_type());
    }
  }
  return out;
}

}  // namespace

TEST_CASE("ONNX: every model that Keras saved is a graph in order") {
  for (const std::string& name : test::keras_models()) {
    CAPTURE(name);
    const KerasArchive archive = read_keras_archive(test::keras_file(name + ".keras"));
    const onnx::ModelProto model = exported(test::import_text(archive.config).yaml);
    CHECK(model.ir_version() == 8);
    REQUIRE(model.opset_import_size() == 1);
    CHECK(model.opset_import(0).version() == 17);
    check_graph(model.graph(), {});
    for (const auto& input : model.graph().input()) {
      CHECK(input.type().tensor_type().shape().dim(0).dim_param() == "batch");
    }
  }
}

TEST_CASE("ONNX: layers are the ops of the same name") {
  const onnx::ModelProto model = exported(
      "name: small\nmodel:\n  name: small\n  layers:\n    - Input: {name: image, shape: [8, 8, "
      "2]}\n"
      "    - Conv2D: {name: c, filters: 3, kernel_size: 3, padding: same, activation: relu}\n"
      "    - MaxPooling2D: {name: p}\n    - Flatten: {name: f}\n"
      "    - Dense: {name: d, units: 4, activation: softmax}\n"
      "compile: {loss: sparse_categorical_crossentropy}\n");
  CHECK(model.graph().name() == "small");
  CHECK(model.graph().input(0).name() == "image");
  CHECK(model.graph().output(0).name() == "d");
  const auto& shape = model.graph().output(0).type().tensor_type().shape();
  CHECK(shape.dim(0).dim_param() == "batch");
  CHECK(shape.dim(1).dim_value() == 4);
  const std::vector<std::string> ops = ops_of(model.graph());
  for (const char* op : {"Conv", "Relu", "MaxPool", "Reshape", "MatMul", "Add", "Exp"}) {
    CHECK_MESSAGE(std::find(ops.begin(), ops.end(), op) != ops.end(), op);
  }
  std::set<std::string> weights;
  for (const auto& tensor : model.graph().initializer()) {
    weights.insert(tensor.name());
  }
  for (const char* path : {"c/kernel", "c/bias", "d/kernel", "d/bias"}) {
    CHECK(weights.contains(path));
  }
}

TEST_CASE("ONNX: a gradient that stops is nothing to predictions") {
  const onnx::ModelProto model = exported(
      "model:\n  layers:\n    - Input: {name: x, shape: [3]}\n    - Lambda: {name: s, function: "
      "\"=stop_gradient(x)\"}\n"
      "    - Add: {inputs: [x, s]}\n");
  CHECK(ops_of(model.graph()) == std::vector<std::string>{"Identity", "Add"});
}

TEST_CASE("ONNX: elements by index of a sample, whose rows follow the batch") {
  const onnx::ModelProto model = exported(
      "model:\n  layers:\n    - Input: {name: x, shape: [3, 4]}\n"
      "    - Lambda: {function: \"=take_along_axis(x, argmax(x, axis=1, keepdims=True), "
      "axis=1)\"}\n"
      "compile: {loss: mse}\n");
  check_graph(model.graph(), {});
  const std::vector<std::string> ops = ops_of(model.graph());
  CHECK(std::count(ops.begin(), ops.end(), "Range") == 1);
  CHECK(std::count(ops.begin(), ops.end(), "Gather") == 1);
}

TEST_CASE("ONNX: what depends on the number of samples is refused with its layer") {
  const auto says = [](const std::string& function, const char* message) {
    CAPTURE(function);
    try {
      exported(
          "model:\n  layers:\n    - Input: {shape: [3, 4]}\n    - Lambda: {name: own, function: "
          "\"" +
          function + "\"}\ncompile: {loss: mse}\n");
      FAIL("it was exported");
    } catch (const ConfigError& error) {
      CHECK(error.exit_code() == ExitCode::kCheckpoint);
      CHECK_MESSAGE(std::string(error.what()).find(message) != std::string::npos, error.what());
    }
  };
  says("=ravel(x)[:5] * x[:, 0, :1]",
       "layer `own`: a part of the batch cannot be expressed in ONNX");
}

TEST_CASE("ONNX: inputs of open sizes are refused") {
  try {
    exported(
        "model:\n  layers:\n    - Input: {name: steps, shape: [null, 4]}\n    - LSTM: {units: 2}\n"
        "compile: {loss: mse}\n");
    FAIL("it was exported");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what())
              .find("input `steps` is (None, None, 4): all sizes but the batch must be known") !=
          std::string::npos);
  }
}

TEST_CASE("ONNX: states that outlast a batch are refused") {
  try {
    exported(
        "model:\n  layers:\n    - Input: {shape: [3, 4], batch_size: 2}\n    - LSTM: {name: kept, "
        "units: 2, stateful: true}\ncompile: {loss: mse}\n");
    FAIL("it was exported");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what())
              .find("layer `kept`: states that outlast a batch cannot be "
                    "expressed in ONNX") != std::string::npos);
  }
}

}  // namespace meshtrain
