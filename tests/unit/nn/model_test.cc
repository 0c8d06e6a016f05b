// Models: names, paths, counts, shared layers, several inputs and outputs, and what is refused.
#include "config/catalogue.h"
#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

LayerConfig layer(const char* class_name, const char* name, std::vector<std::string> inputs = {},
                  const NamedArgs& args = {}) {
  return make_layer_config(class_name, name, std::move(inputs), args);
}

// The model of the Keras guide.
ModelConfig guide_model() {
  return make_model_config(
      {layer("Input", "image", {}, {{"shape", {28, 28, 1}}}), layer("Flatten", "flatten"),
       layer("Dense", "d1", {}, {{"units", 200}, {"use_bias", false}, {"activation", "relu"}}),
       layer("Dropout", "dropout", {}, {{"rate", .4}}),
       layer("Dense", "d2", {}, {{"units", 10}, {"activation", "softmax"}})});
}

std::vector<std::string> paths(const Model& model) {
  std::vector<std::string> out;
  for (const Weight* weight : model.weights()) {
    out.push_back(weight->path);
  }
  return out;
}

std::vector<std::string> messages(const Diagnostics& diagnostics) {
  std::vector<std::string> out;
  for (const Diagnostic& d : diagnostics.list()) {
    out.push_back(d.code + ": " + d.message);
  }
  return out;
}

TEST_CASE("the guide's model has Keras' paths and counts") {
  Diagnostics diagnostics;
  const Model model(guide_model(), DType::kFloat32, diagnostics);
  CHECK(diagnostics.num_errors() == 0);
  CHECK(paths(model) == std::vector<std::string>{"d1/kernel", "d2/kernel", "d2/bias"});
  CHECK(model.num_params() == 784 * 200 + 200 * 10 + 10);
  CHECK(model.inputs() == std::vector<int>{0});
  CHECK(model.outputs() == std::vector<int>{4});
  CHECK(model.output_names() == std::vector<std::string>{"d2"});
  CHECK(model.calls()[4].output_shape == Shape{kUnknownDim, 10});
}

TEST_CASE("every layer's output may be pinned under its path") {
  Diagnostics diagnostics;
  const Model model(guide_model(), DType::kFloat32, diagnostics);
  Graph graph;
  Builder b(graph);
  std::vector<ValueId> parameters;
  for (const Weight* weight : model.weights()) {
    parameters.push_back(
        b.parameter(b.add_variable({.path = weight->path, .shape = weight->shape})));
  }
  const ValueId x = b.input("image", {4, 28, 28, 1}, DType::kUInt8, true);
  std::vector<std::string> keys;
  model.apply(b, std::vector{x}, parameters, false, kNone, 0,
              [&](const std::string& key, ValueId value) {
                keys.push_back(key);
                return value;
              });
  CHECK(keys ==
        std::vector<std::string>{"flatten/output", "d1/output", "dropout/output", "d2/output"});
  verify(graph);
}

TEST_CASE("an Input casts its data to its dtype") {
  Diagnostics diagnostics;
  const Model model(make_model_config({layer("Input", "x", {}, {{"shape", {1}}}),
                                       layer("Add", "sum", {"x", "x"})}),
                    DType::kFloat64, diagnostics);
  const HostTensor x = tensor_of<int>(DType::kUInt8, {1, 1}, {200});
  const HostTensor y = run_model(model, {&x});
  CHECK(y.dtype() == DType::kFloat64);
  check_near(numbers(y), {400});
}

TEST_CASE("a frozen layer's weights do not train") {
  Diagnostics diagnostics;
  const Model model(
      make_model_config({layer("Input", "x", {}, {{"shape", {2}}}),
                         layer("Dense", "frozen", {}, {{"units", 3}, {"trainable", false}}),
                         layer("Dense", "head", {}, {{"units", 1}})}),
      DType::kFloat32, diagnostics);
  CHECK(!model.weights()[0]->trainable);
  CHECK(model.weights()[2]->trainable);
  CHECK(model.num_params() == 13);
  CHECK(model.num_params(/*trainable_only=*/true) == 4);
}

ModelConfig shared_model(int second_width) {
  return make_model_config(
      {layer("Input", "a", {}, {{"shape", {2}}}),
       layer("Input", "b", {}, {{"shape", {second_width}}}),
       layer("Dense", "d", {"a"}, {{"units", 1}, {"use_bias", false}}),
       layer("Call", "again", {"b"}, {{"layer", "d"}}), layer("Subtract", "diff", {"d", "again"})},
      {"diff", "again"});
}

TEST_CASE("a shared layer has its weights once") {
  Diagnostics diagnostics;
  const Model model(shared_model(2), DType::kFloat32, diagnostics);
  CHECK_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  CHECK(paths(model) == std::vector<std::string>{"d/kernel"});
  CHECK(model.output_names() == std::vector<std::string>{"diff", "again"});
  const HostTensor a = floats({1, 2}, {1, 2});
  const HostTensor b = floats({1, 2}, {10, 20});
  std::vector<std::pair<std::string, HostTensor>> weights;
  weights.emplace_back("d/kernel", floats({2, 1}, {1, 3}));
  check_near(numbers(run_model(model, {&a, &b}, weights)), {7 - 70.0});
}

TEST_CASE("a shared layer reads its weight once per call") {
  Diagnostics diagnostics;
  const Model model(shared_model(2), DType::kFloat32, diagnostics);
  Graph graph;
  Builder builder(graph);
  const ValueId kernel =
      builder.parameter(builder.add_variable({.path = "d/kernel", .shape = {2, 1}}));
  const ValueId a = builder.input("a", {4, 2}, DType::kFloat32, true);
  const ValueId b = builder.input("b", {4, 2}, DType::kFloat32, true);
  model.apply(builder, std::vector{a, b}, std::vector{kernel}, true, kNone, 0, nullptr);
  int uses = 0;
  for (const Node& node : graph.nodes) {
    uses += node.inputs == std::vector{kernel} ? 1 : 0;
  }
  CHECK(uses == 2);
}

// Calls of one layer: sizes of the inputs of each.
struct SharedCase {
  const char* class_name;
  NamedArgs args;
  std::vector<std::vector<Shape>> calls;
  std::vector<std::vector<std::string>> roles = {};  // of each call's inputs
};

// What call `wanted` gives, in a model that has the calls `made`, the first of which is the
// layer's.
std::vector<double> output_of_call(const SharedCase& shared, const std::vector<size_t>& made,
                                   size_t wanted) {
  std::vector<LayerConfig> layers;
  std::vector<HostTensor> values;
  for (const size_t call : made) {
    std::vector<std::string> inputs;
    for (const Shape& shape : shared.calls[call]) {
      inputs.push_back("in" + std::to_string(values.size()));
      ConfigValue::List sizes;
      Shape whole = {4};
      for (const int64_t size : shape) {
        sizes.emplace_back().data = size;
        whole.push_back(size);
      }
      LayerConfig input = make_layer_config("Input", inputs.back(), {}, {{"shape", {1}}});
      input.object.args["shape"].data = sizes;
      layers.push_back(std::move(input));
      HostTensor value(DType::kFloat32, whole);
      for (int64_t i = 0; i < value.size(); ++i) {
        value.set(i, static_cast<double>((i * 37 + 11 * std::ssize(inputs)) % 101) / 100);
      }
      values.push_back(std::move(value));
    }
    const std::string name = layers.size() == inputs.size() ? "shared" : "again";
    layers.push_back(name == "shared"
                         ? make_layer_config(shared.class_name, name, inputs, shared.args)
                         : make_layer_config("Call", name, inputs, {{"layer", "shared"}}));
    if (!shared.roles.empty()) {
      layers.back().input_roles = shared.roles[call];
    }
  }
  Diagnostics diagnostics;
  const Model model(make_model_config(std::move(layers), {wanted == made[0] ? "shared" : "again"}),
                    DType::kFloat32, diagnostics);
  const bool is_whole = std::all_of(diagnostics.list().begin(), diagnostics.list().end(),
                                    [](const Diagnostic& d) { return d.code == "E121"; });
  REQUIRE_MESSAGE(is_whole, diagnostics.render());
  std::vector<const HostTensor*> inputs;
  for (const HostTensor& value : values) {
    inputs.push_back(&value);
  }
  return numbers(run_model(model, inputs));
}

TEST_CASE("each call of a shared layer has its own inputs") {
  const ConfigObject lstm = make_object(Category::kLayer, "LSTM", {{"units", 3}});
  const std::vector<SharedCase> cases = {
      {"Bidirectional", {{"layer", lstm}}, {{{5, 2}, {3}, {3}, {3}, {3}}, {{5, 2}}}},
      {"ConvLSTM2D", {{"filters", 2}, {"kernel_size", 2}}, {{{3, 5, 6, 1}}, {{3, 7, 4, 1}}}},
      {"ContrastLimitedAdaptiveHistogramEqualization",
       {{"tile_grid_size", {2, 2}}, {"value_range", {0, 1}}},
       {{{8, 8, 1}}, {{6, 10, 1}}}},
      {"TransformerEncoder",
       {{"intermediate_dim", 4}, {"num_heads", 2}},
       {{{5, 4}}, {{5, 4}, {5}}},
       {{}, {"inputs", "padding_mask"}}}};
  for (const SharedCase& shared : cases) {
    CAPTURE(shared.class_name);
    for (const size_t wanted : {0, 1}) {
      const std::vector<double> alone = output_of_call(shared, {wanted}, wanted);
      CHECK(output_of_call(shared, {0, 1}, wanted) == alone);
      CHECK(output_of_call(shared, {1, 0}, wanted) == alone);
    }
  }
}

TEST_CASE("a shared layer refuses an input of another width") {
  Diagnostics diagnostics;
  const Model model(shared_model(5), DType::kFloat32, diagnostics);
  CHECK(messages(diagnostics) ==
        std::vector<std::string>{"E120: layer `d` is used again with another input: `d/kernel` "
                                 "would need shape (5, 1), but has (2, 1)"});
}

TEST_CASE("problems of several layers are reported together and once") {
  Diagnostics diagnostics;
  const Model model(
      make_model_config({layer("Input", "x", {}, {{"shape", {4, 6}}}),
                         layer("Reshape", "r", {}, {{"target_shape", {5}}}),
                         layer("Dense", "after", {}, {{"units", 3}}), layer("Add", "lonely", {"x"}),
                         layer("Dense", "typo", {"aftr"}, {{"units", 1}})}),
      DType::kFloat32, diagnostics);
  const std::vector<std::string> found = messages(diagnostics);
  REQUIRE(found.size() == 3);
  CHECK(doctest::String(found[0].c_str()) == doctest::Contains("`r` (Reshape) gets (None, 4, 6)"));
  CHECK(found[1] == "E120: layer `lonely` (Add) gets (None, 4, 6): it takes two inputs or more");
  CHECK(found[2] == "E121: input `aftr` is no earlier layer");
  CHECK(diagnostics.list()[2].label == "did you mean `after`?");
}

TEST_CASE("names must differ and every layer must matter") {
  Diagnostics twice;
  const Model same(make_model_config({layer("Input", "x", {}, {{"shape", {2}}}),
                                      layer("Dense", "d", {}, {{"units", 1}}),
                                      layer("Dense", "d", {"x"}, {{"units", 1}})}),
                   DType::kFloat32, twice);
  CHECK(messages(twice) == std::vector<std::string>{"E121: two layers are called `d`"});
  Diagnostics unused;
  const Model loose(make_model_config({layer("Input", "x", {}, {{"shape", {2}}}),
                                       layer("Dense", "d", {}, {{"units", 1}}),
                                       layer("Dense", "e", {"x"}, {{"units", 1}})}),
                    DType::kFloat32, unused);
  CHECK(messages(unused) == std::vector<std::string>{"E121: no output depends on layer `d`"});
}

TEST_CASE("a model without an Input must begin with one") {
  Diagnostics diagnostics;
  const Model model(make_model_config({layer("Dense", "d", {}, {{"units", 1}})}), DType::kFloat32,
                    diagnostics);
  CHECK(messages(diagnostics) == std::vector<std::string>{"E120: layer `d` has no input"});
  CHECK(diagnostics.list()[0].notes[0] ==
        "help: begin the model with `Input: {shape: [...]}`, the shape of one sample");
}

TEST_CASE("every layer class of the catalogue is implemented") {
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    if (spec.name == "Input" || spec.name == "Call" || spec.name == "Repeat") {
      continue;
    }
    CAPTURE(spec.name);
    LayerConfig config;
    config.object.class_name = spec.name;
    config.name.value = "layer";
    CHECK(make_layer(config, DType::kFloat32) != nullptr);
  }
}

TEST_CASE("a layer may compute in a dtype of its own") {
  Diagnostics diagnostics;
  const Model model(
      make_model_config({layer("Input", "x", {}, {{"shape", {1}}}),
                         layer("Dense", "d", {}, {{"units", 1}, {"dtype", "float64"}})}),
      DType::kFloat32, diagnostics);
  CHECK(model.weights()[0]->dtype == DType::kFloat64);
  const HostTensor x = floats({1, 1}, {1});
  CHECK(run_model(model, {&x}).dtype() == DType::kFloat64);
}

}  // namespace
}  // namespace meshtrain::testing
