// Layers: shapes, values and messages.
#include <cmath>

#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

LayerConfig input(const char* name, Arg shape, Arg dtype = nullptr) {
  NamedArgs args = {{"shape", std::move(shape)}};
  if (!dtype.is_null()) {
    args.emplace_back("dtype", std::move(dtype));
  }
  return make_layer_config("Input", name, {}, args);
}

struct Built {
  Model model;
  Diagnostics diagnostics;
};

// A model whose inputs a, b, ... have the given shapes and whose only layer takes them all.
std::unique_ptr<Built> build(const std::string& class_name, const std::vector<Arg>& shapes,
                             const NamedArgs& args = {}, Arg dtype = nullptr) {
  std::vector<LayerConfig> layers;
  std::vector<std::string> names;
  for (const Arg& shape : shapes) {
    names.emplace_back(1, static_cast<char>('a' + names.size()));
    layers.push_back(input(names.back().c_str(), shape, dtype));
  }
  layers.push_back(make_layer_config(class_name, "layer", names, args));
  Diagnostics diagnostics;
  Model model(make_model_config(std::move(layers)), DType::kFloat32, diagnostics);
  return std::make_unique<Built>(Built{std::move(model), std::move(diagnostics)});
}

Shape output_shape(const Built& built) {
  CHECK_MESSAGE(built.diagnostics.num_errors() == 0, built.diagnostics.render());
  return built.model.calls().back().output_shape;
}

std::string message(const Built& built) {
  REQUIRE(built.diagnostics.num_errors() == 1);
  const Diagnostic& found = built.diagnostics.list()[0];
  return found.code + ": " + found.message + (found.notes.empty() ? "" : " | " + found.notes[0]);
}

constexpr int64_t kBatch = kUnknownDim;

TEST_CASE("Flatten keeps the batch") {
  CHECK(output_shape(*build("Flatten", {{28, 28, 1}})) == Shape{kBatch, 784});
  CHECK(output_shape(*build("Flatten", {Arg(std::initializer_list<Arg>{})})) == Shape{kBatch, 1});
  CHECK(output_shape(*build("Flatten", {{nullptr, 3}})) == Shape{kBatch, kUnknownDim});
  const auto first = build("Flatten", {{2, 3}}, {{"data_format", "channels_first"}});
  const HostTensor x = floats({1, 2, 3}, {0, 1, 2, 3, 4, 5});
  check_near(numbers(run_model(first->model, {&x})), {0, 3, 1, 4, 2, 5});
}

TEST_CASE("Flatten keeps integers for the layer that computes") {
  const auto built = build("Flatten", {{2, 2}}, {}, "uint8");
  CHECK(built->model.calls().back().dtype == DType::kUInt8);
  const HostTensor x = tensor_of<int>(DType::kUInt8, {1, 2, 2}, {1, 2, 3, 255});
  const HostTensor y = run_model(built->model, {&x});
  CHECK(y.dtype() == DType::kUInt8);
  check_near(numbers(y), {1, 2, 3, 255});
}

TEST_CASE("Reshape works out one size") {
  CHECK(output_shape(*build("Reshape", {{4, 6}}, {{"target_shape", {8, -1}}})) ==
        Shape{kBatch, 8, 3});
  CHECK(output_shape(*build("Reshape", {{4, 6}}, {{"target_shape", {24}}})) == Shape{kBatch, 24});
  CHECK(message(*build("Reshape", {{4, 6}}, {{"target_shape", {5, -1}}})) ==
        "E120: layer `layer` (Reshape) gets (None, 4, 6): 24 numbers per sample cannot take the "
        "shape [5, -1] | help: the product of `target_shape` must be the number of elements per "
        "sample");
}

TEST_CASE("the first of equal maxima in an adaptive window has the gradient, as in Keras") {
  const auto gradient = [](Arg size, const std::vector<double>& values) {
    const auto built = build("AdaptiveMaxPooling2D", {{4, 4, 1}}, {{"output_size", size}});
    const HostTensor x = floats({1, 4, 4, 1}, values);
    return run_one({&x}, [&](Builder& b, const std::vector<ValueId>& in) {
      const std::vector<ValueId> y = built->model.apply(b, in, {}, true, kNone, 7, nullptr);
      return gradients(b, b.reduce_sum_all(y[0]), in)[0];
    });
  };
  const std::vector<double> ones(16, 1);
  check_near(gradient(2, ones), {1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0});
  check_near(gradient(3, ones), {1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0});
}

TEST_CASE("Permute counts from 1") {
  const auto built = build("Permute", {{2, 3}}, {{"dims", {2, 1}}});
  CHECK(output_shape(*built) == Shape{kBatch, 3, 2});
  const HostTensor x = floats({1, 2, 3}, {0, 1, 2, 3, 4, 5});
  check_near(numbers(run_model(built->model, {&x})), {0, 3, 1, 4, 2, 5});
  CHECK(doctest::String(message(*build("Permute", {{2, 3}}, {{"dims", {0, 1}}})).c_str()) ==
        doctest::Contains("is no order of its dimensions"));
}

TEST_CASE("Dense contracts the last axis and adds bias and activation") {
  const auto built = build("Dense", {{3, 2}}, {{"units", 2}, {"activation", "relu"}});
  CHECK(output_shape(*built) == Shape{kBatch, 3, 2});
  const HostTensor x = floats({1, 3, 2}, {1, 2, 3, 4, -5, 0});
  std::vector<std::pair<std::string, HostTensor>> weights;
  weights.emplace_back("layer/kernel", floats({2, 2}, {1, 2, 3, 4}));
  weights.emplace_back("layer/bias", floats({2}, {0, -20}));
  check_near(numbers(run_model(built->model, {&x}, weights)), {7, 0, 15, 2, 0, 0});
  CHECK(
      message(*build("Dense", {Arg(std::initializer_list<Arg>{})}, {{"units", 2}})) ==
      "E120: layer `layer` (Dense) gets (None,): it needs at least one dimension besides the batch "
      "| help: give the Input a shape such as [1], or add Flatten before it");
}

TEST_CASE("Dense casts integers to its dtype") {
  const auto built = build("Dense", {{2}}, {{"units", 1}, {"use_bias", false}}, "uint8");
  const HostTensor x = tensor_of<int>(DType::kUInt8, {1, 2}, {200, 100});
  std::vector<std::pair<std::string, HostTensor>> weights;
  weights.emplace_back("layer/kernel", floats({2, 1}, {2, .5}));
  const HostTensor y = run_model(built->model, {&x}, weights);
  CHECK(y.dtype() == DType::kFloat32);
  check_near(numbers(y), {450});
}

TEST_CASE("EinsumDense understands equations with and without dots") {
  const struct {
    const char* equation;
    Arg input, output;
    const char* bias_axes;
    Shape kernel, bias, result;
  } cases[] = {
      {"ab,bc->ac", {32}, {64}, "c", {32, 64}, {64}, {kBatch, 64}},
      {"abc,cd->abd", {32, 128}, {nullptr, 64}, "d", {128, 64}, {64}, {kBatch, 32, 64}},
      {"...x,xy->...y", {32, 128}, {64}, "y", {128, 64}, {64}, {kBatch, 32, 64}},
      {"abc,cde->abde", {5, 8}, {nullptr, 2, 4}, "de", {8, 2, 4}, {2, 4}, {kBatch, 5, 2, 4}},
      {"abcd,cde->abe", {5, 2, 4}, {nullptr, 8}, "e", {2, 4, 8}, {8}, {kBatch, 5, 8}},
      {"abc,bd->adc", {3, 4}, {6, 4}, "d", {3, 6}, {6, 1}, {kBatch, 6, 4}},
      {"ab...,bc->ac...", {3, 4}, {6}, "c", {3, 6}, {6, 1}, {kBatch, 6, 4}},
  };
  for (const auto& c : cases) {
    CAPTURE(c.equation);
    const auto built =
        build("EinsumDense", {c.input},
              {{"equation", c.equation}, {"output_shape", c.output}, {"bias_axes", c.bias_axes}});
    CHECK(output_shape(*built) == c.result);
    REQUIRE(built->model.weights().size() == 2);
    CHECK(built->model.weights()[0]->shape == c.kernel);
    CHECK(built->model.weights()[1]->shape == c.bias);
    Shape batch_input = {2};
    for (const ConfigValue& size : c.input.list()) {
      batch_input.push_back(size.integer());
    }
    const HostTensor x(DType::kFloat32, batch_input);
    Shape expected = c.result;
    expected[0] = 2;
    CHECK(run_model(built->model, {&x}).shape() == expected);
  }
}

TEST_CASE("EinsumDense draws with the fans of its equation") {
  const auto built = build("EinsumDense", {{5, 8}},
                           {{"equation", "abc,cde->abde"}, {"output_shape", {nullptr, 2, 4}}});
  REQUIRE(built->model.weights().size() == 1);
  const Weight& kernel = *built->model.weights()[0];
  double largest = 0;
  for (const double v : numbers(kernel.initializer(kernel.shape, kernel.dtype, 1, kernel.path))) {
    largest = std::max(largest, std::abs(v));
  }
  CHECK(largest <= 0.61238);  // sqrt(6 / (8 + 8)); the plain rule would give 0.354
  CHECK(largest > 0.4);
}

TEST_CASE("EinsumDense explains what does not fit") {
  const auto text = [](const char* equation, Arg shape) {
    return message(*build("EinsumDense", {{3, 4}},
                          {{"equation", equation}, {"output_shape", std::move(shape)}}));
  };
  CHECK(doctest::String(text("ab->c", {4}).c_str()) == doctest::Contains("is not understood"));
  CHECK(doctest::String(text("ab,bc->ac", {4}).c_str()) ==
        doctest::Contains("is for inputs of rank 2"));
  CHECK(doctest::String(text("abc,cd->abd", {7, 5}).c_str()) ==
        doctest::Contains("says 7 where `b` is 3"));
  CHECK(doctest::String(text("abc,cd->abd", {5}).c_str()) == doctest::Contains("has 1 entries"));
}

TEST_CASE("Embedding looks rows up by any number") {
  const auto built = build("Embedding", {{2}}, {{"input_dim", 3}, {"output_dim", 2}}, "int32");
  CHECK(output_shape(*built) == Shape{kBatch, 2, 2});
  std::vector<std::pair<std::string, HostTensor>> weights;
  weights.emplace_back("layer/embeddings", floats({3, 2}, {0, 1, 10, 11, 20, 21}));
  const HostTensor ids = ints({1, 2}, {2, 1});
  check_near(numbers(run_model(built->model, {&ids}, weights)), {20, 21, 10, 11});
  const HostTensor floating = floats({1, 2}, {2, 0});
  check_near(
      numbers(run_model(build("Embedding", {{2}}, {{"input_dim", 3}, {"output_dim", 2}})->model,
                        {&floating}, weights)),
      {20, 21, 0, 1});
}

TEST_CASE("Dropout is the identity outside of training and exact at its ends") {
  const HostTensor x = floats({4, 50}, std::vector<double>(200, 2));
  const auto half = build("Dropout", {{50}}, {{"rate", .5}});
  check_near(numbers(run_model(half->model, {&x})), numbers(x));
  int kept = 0;
  for (const double v : numbers(run_model(half->model, {&x}, {}, /*training=*/true))) {
    const bool is_kept = v == 4;
    CHECK((is_kept || v == 0));
    kept += is_kept ? 1 : 0;
  }
  CHECK(kept > 70);
  CHECK(kept < 130);
  const auto none = build("Dropout", {{50}}, {{"rate", 0.0}});
  check_near(numbers(run_model(none->model, {&x}, {}, true)), numbers(x));
  const auto all = build("Dropout", {{50}}, {{"rate", 1.0}});
  check_near(numbers(run_model(all->model, {&x}, {}, true)), std::vector<double>(200, 0));
}

TEST_CASE("Dropout shares its mask along noise dimensions of 1") {
  const HostTensor x = floats({2, 3, 8}, std::vector<double>(48, 1));
  const auto shared =
      build("Dropout", {{3, 8}}, {{"rate", .5}, {"noise_shape", {nullptr, 1, nullptr}}});
  const std::vector<double> y = numbers(run_model(shared->model, {&x}, {}, true));
  for (int sample = 0; sample < 2; ++sample) {
    for (int feature = 0; feature < 8; ++feature) {
      CHECK(y[sample * 24 + feature] == y[sample * 24 + 8 + feature]);
      CHECK(y[sample * 24 + feature] == y[sample * 24 + 16 + feature]);
    }
  }
  CHECK(
      doctest::String(
          message(*build("Dropout", {{3, 8}}, {{"rate", .5}, {"noise_shape", {2, 5}}})).c_str()) ==
      doctest::Contains("does not broadcast to its input (None, 3, 8)"));
}

TEST_CASE("Dropout's own seed takes the place of the run's") {
  const HostTensor x = floats({1, 64}, std::vector<double>(64, 1));
  const auto masked = [&](const NamedArgs& args) {
    return numbers(run_model(build("Dropout", {{64}}, args)->model, {&x}, {}, true));
  };
  CHECK(masked({{"rate", .5}, {"seed", 7}}) == masked({{"rate", .5}}));  // run_model's seed is 7
  CHECK(masked({{"rate", .5}, {"seed", 8}}) != masked({{"rate", .5}}));
}

TEST_CASE("activation layers have Keras' defaults") {
  const HostTensor x = floats({1, 4}, {-3, -1, 0.5, 7});
  const auto values = [&](const char* name, const NamedArgs& args = {}) {
    return numbers(run_model(build(name, {{4}}, args)->model, {&x}));
  };
  check_near(values("ReLU"), {0, 0, .5, 7});
  check_near(values("ReLU", {{"max_value", 6.0}}), {0, 0, .5, 6});
  check_near(values("ReLU", {{"negative_slope", .1}, {"max_value", 2.0}, {"threshold", .6}}),
             {-.36, -.16, -.01, 2});
  check_near(values("LeakyReLU"), {-.9, -.3, .5, 7});
  check_near(values("ELU", {{"alpha", 2.0}}), {-1.900426, -1.264241, .5, 7});
  check_near(values("Activation", {{"activation", "softsign"}}), {-.75, -.5, .333333, .875});
  check_near(values("Identity"), {-3, -1, .5, 7});
}

TEST_CASE("an activation may change the shape or not fit it") {
  CHECK(output_shape(*build("Dense", {{3}}, {{"units", 8}, {"activation", "glu"}})) ==
        Shape{kBatch, 4});
  CHECK(doctest::String(
            message(*build("Dense", {{3}}, {{"units", 7}, {"activation", "glu"}})).c_str()) ==
        doctest::Contains("`glu` needs an even size to split, not 7"));
  const Arg far = make_object(Category::kActivation, "softmax", {{"axis", 4}});
  CHECK(doctest::String(message(*build("Activation", {{3}}, {{"activation", far}})).c_str()) ==
        doctest::Contains("`softmax` finds no axis 4 in its input"));
}

TEST_CASE("Softmax runs over one axis or several together") {
  const HostTensor x = floats({1, 2, 2}, {0, 0, 0, 0});
  check_near(numbers(run_model(build("Softmax", {{2, 2}})->model, {&x})), {.5, .5, .5, .5});
  check_near(numbers(run_model(build("Softmax", {{2, 2}}, {{"axis", {1, 2}}})->model, {&x})),
             {.25, .25, .25, .25});
  CHECK(doctest::String(message(*build("Softmax", {{2, 2}}, {{"axis", 3}})).c_str()) ==
        doctest::Contains("axis 3 is not a dimension after the batch"));
}

TEST_CASE("Rescaling takes numbers or one per channel") {
  const HostTensor x = tensor_of<int>(DType::kUInt8, {1, 2}, {0, 255});
  check_near(
      numbers(run_model(
          build("Rescaling", {{2}}, {{"scale", 1.0 / 255}, {"offset", -1.0}}, "uint8")->model,
          {&x})),
      {-1, 0});
  check_near(
      numbers(run_model(
          build("Rescaling", {{2}}, {{"scale", {2.0, 3.0}}, {"offset", {1.0, 0.0}}})->model, {&x})),
      {1, 765});
  check_near(numbers(run_model(
                 build("Rescaling", {{2}}, {{"scale", {2.0}}, {"offset", {1.0}}})->model, {&x})),
             {1, 511});
  CHECK(
      doctest::String(message(*build("Rescaling", {{2}}, {{"scale", {1.0, 2.0, 3.0}}})).c_str()) ==
      doctest::Contains("has 3 numbers"));
}

TEST_CASE("Normalization uses the given statistics") {
  const HostTensor x = floats({2, 2}, {1, 10, 3, 30});
  const NamedArgs args = {{"mean", {1.0, 10.0}}, {"variance", {4.0, 100.0}}};
  check_near(numbers(run_model(build("Normalization", {{2}}, args)->model, {&x})), {0, 0, 1, 2});
  NamedArgs invert = args;
  invert.emplace_back("invert", true);
  check_near(numbers(run_model(build("Normalization", {{2}}, invert)->model, {&x})),
             {3, 110, 7, 310});
  check_near(numbers(run_model(build("Normalization", {{2}},
                                     {{"axis", nullptr}, {"mean", 2.0}, {"variance", 0.0}})
                                   ->model,
                               {&x})),
             {-1e7, 8e7, 1e7, 28e7}, 100);
  // Without them it has weights, which the training data fill before the first step.
  const auto adapts = build("Normalization", {{2}});
  CHECK(adapts->diagnostics.num_errors() == 0);
  std::vector<std::string> paths;
  for (const Weight* weight : adapts->model.weights()) {
    paths.push_back(weight->path);
    CHECK(!weight->trainable);
  }
  CHECK(paths == std::vector<std::string>{"layer/mean", "layer/variance", "layer/count"});
}

TEST_CASE("merging layers broadcast") {
  const HostTensor a = floats({2, 2}, {1, 2, 3, 4});
  const HostTensor b = floats({2, 2}, {5, 1, 2, 8});
  const auto merged = [&](const char* name) {
    return numbers(run_model(build(name, {{2}, {2}})->model, {&a, &b}));
  };
  check_near(merged("Add"), {6, 3, 5, 12});
  check_near(merged("Subtract"), {-4, 1, 1, -4});
  check_near(merged("Multiply"), {5, 2, 6, 32});
  check_near(merged("Average"), {3, 1.5, 2.5, 6});
  check_near(merged("Maximum"), {5, 2, 3, 8});
  check_near(merged("Minimum"), {1, 1, 2, 4});
  // Lower ranks get dimensions of 1 after the batch.
  const auto ranks = build("Add", {{3, 2}, {2}});
  CHECK(output_shape(*ranks) == Shape{kBatch, 3, 2});
  const HostTensor c = floats({2, 3, 2}, std::vector<double>(12, 0));
  check_near(numbers(run_model(ranks->model, {&c, &a})), {1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4});
  CHECK(message(*build("Add", {{3}, {2}})) ==
        "E120: layer `layer` (Add) gets (None, 3) and (None, 2): these do not broadcast | help: "
        "sizes must be equal or 1 in every dimension");
  CHECK(doctest::String(message(*build("Subtract", {{2}})).c_str()) ==
        doctest::Contains("exactly two inputs"));
}

TEST_CASE("Concatenate joins along its axis") {
  const auto built = build("Concatenate", {{2, 1}, {2, 2}});
  CHECK(output_shape(*built) == Shape{kBatch, 2, 3});
  const HostTensor a = floats({1, 2, 1}, {1, 2});
  const HostTensor b = floats({1, 2, 2}, {3, 4, 5, 6});
  check_near(numbers(run_model(built->model, {&a, &b})), {1, 3, 4, 2, 5, 6});
  CHECK(output_shape(*build("Concatenate", {{2, 1}, {3, 1}}, {{"axis", 1}})) ==
        Shape{kBatch, 5, 1});
  CHECK(doctest::String(message(*build("Concatenate", {{2, 1}, {3, 1}})).c_str()) ==
        doctest::Contains("all dimensions but axis 2 must agree"));
}

TEST_CASE("Dot contracts one axis of each input per sample") {
  const HostTensor a = floats({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const HostTensor b = floats({1, 3, 2}, {1, 0, 0, 1, 1, 1});
  const auto built = build("Dot", {{2, 3}, {3, 2}}, {{"axes", {2, 1}}});
  CHECK(output_shape(*built) == Shape{kBatch, 2, 2});
  check_near(numbers(run_model(built->model, {&a, &b})), {4, 5, 10, 11});
  const HostTensor u = floats({2, 2}, {3, 4, 1, 0});
  const HostTensor v = floats({2, 2}, {4, 3, 0, 0});
  const auto cosine = build("Dot", {{2}, {2}}, {{"axes", -1}, {"normalize", true}});
  CHECK(output_shape(*cosine) == Shape{kBatch, 1});
  check_near(numbers(run_model(cosine->model, {&u, &v})), {.96, 0});
  CHECK(doctest::String(message(*build("Dot", {{2}, {3}}, {{"axes", 1}})).c_str()) ==
        doctest::Contains("differ"));
}

}  // namespace
}  // namespace meshtrain::testing
