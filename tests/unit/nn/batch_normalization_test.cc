// BatchNormalization beyond single calls: shared layers and numbers far from zero. Its values are
// compared with Keras' in keras_layers_test.cc.
#include <cmath>

#include "nn_testing.h"
#include "support/splitmix.h"

namespace meshtrain::testing {
namespace {

using meshtrain::test::splitmix_signed;

// New values of all weights, beside model.weights(), after a training call on x; those that no
// layer changes are as they were.
std::vector<HostTensor> weights_after(const Model& model, const HostTensor& x) {
  std::vector<HostTensor> stored;
  std::vector<const HostTensor*> inputs = {&x};
  for (const Weight* weight : model.weights()) {
    stored.push_back(weight->initializer(weight->shape, weight->dtype, 1, weight->path));
  }
  for (const HostTensor& tensor : stored) {
    inputs.push_back(&tensor);
  }
  return run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
    const std::vector<ValueId> parameters(in.begin() + 1, in.end());
    std::vector<ValueId> updates;
    model.apply(b, std::span(in).first(1), parameters, true, b.constant(0, DType::kInt64), 0,
                nullptr, nullptr, &updates);
    for (size_t w = 0; w < updates.size(); ++w) {
      updates[w] = updates[w] == kNone ? parameters[w] : updates[w];
    }
    return updates;
  });
}

Model model_of(std::vector<LayerConfig> layers) {
  Diagnostics diagnostics;
  Model model(make_model_config(std::move(layers)), DType::kFloat32, diagnostics);
  CHECK_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  return model;
}

TEST_CASE("A BatchNormalization that is used twice moves its averages twice") {
  const Model model = model_of(
      {make_layer_config("Input", "x", {}, {{"shape", {1}}}),
       make_layer_config("BatchNormalization", "bn", {"x"}, {{"momentum", 0.5}, {"epsilon", 0.0}}),
       make_layer_config("Call", "again", {"bn"}, {{"layer", "bn"}})});
  const HostTensor x = floats({4, 1}, {6, 10, 6, 10});  // mean 8, variance 4
  const std::vector<HostTensor> after = weights_after(model, x);
  REQUIRE(after.size() == 4);
  // First to (0 + 8) / 2 and (1 + 4) / 2; the second call sees mean 0 and variance 1.
  check_near(numbers(after[2]), {2});
  check_near(numbers(after[3]), {1.75});
}

TEST_CASE("A mask leaves steps out of the statistics, not of the output") {
  const Model model = model_of(
      {make_layer_config("Input", "x", {}, {{"shape", {2, 1}}}),
       make_layer_config("Masking", "mask", {"x"}),
       make_layer_config("BatchNormalization", "bn", {}, {{"momentum", 0.5}, {"epsilon", 0.0}})});
  const HostTensor x = floats({2, 2, 1}, {6, 0, 10, 8});  // without 0: mean 8, variance 8 / 3
  const std::vector<HostTensor> after = weights_after(model, x);
  REQUIRE(after.size() == 4);
  check_near(numbers(after[2]), {8 / 2.0});
  check_near(numbers(after[3]), {(1 + 8 / 3.0) / 2});
  const double root = std::sqrt(8 / 3.0);
  check_near(numbers(run_model(model, {&x}, {}, true)), {-2 / root, -8 / root, 2 / root, 0});
}

TEST_CASE("A layer that does not train keeps its averages") {
  const Model model =
      model_of({make_layer_config("Input", "x", {}, {{"shape", {1}}}),
                make_layer_config("BatchNormalization", "bn", {"x"}, {{"trainable", false}})});
  const std::vector<HostTensor> after = weights_after(model, floats({2, 1}, {6, 10}));
  check_near(numbers(after[2]), {0});
  check_near(numbers(after[3]), {1});
}

TEST_CASE("The variance of float32 numbers around ten thousand is right") {
  const Model model =
      model_of({make_layer_config("Input", "x", {}, {{"shape", {2}}}),
                make_layer_config("BatchNormalization", "bn", {"x"}, {{"momentum", 0.0}})});
  HostTensor x(DType::kFloat32, {512, 2});
  double sum[2] = {}, squares[2] = {};
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, 10000 + splitmix_signed(5, static_cast<uint64_t>(i), 2));
    const double centred = x.at(i) - 10000;  // exact
    sum[i % 2] += centred;
    squares[i % 2] += centred * centred;
  }
  const std::vector<HostTensor> after = weights_after(model, x);
  for (int64_t c = 0; c < 2; ++c) {
    const double mean = sum[c] / 512, variance = squares[c] / 512 - mean * mean;
    CHECK(std::abs(after[2].at(c) - (10000 + mean)) < 1e-3);
    CHECK(std::abs(after[3].at(c) - variance) < 1e-5 * variance);
  }
}

}  // namespace
}  // namespace meshtrain::testing
