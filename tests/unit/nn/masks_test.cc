// Masks of steps: which layers make, pass on, combine and drop them, and what losses and metrics
// make of them. Values are Keras' formulas, computed by hand.
#include "nn/masks.h"

#include <doctest/doctest.h>

#include <cmath>

#include "config/load.h"
#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

struct Built {
  Diagnostics diagnostics;
  bool has_mask = false;  // of the last layer
};

// A model of ids (batch, 4) through an Embedding of 3 features with a mask, and then `layers`.
Built build(const std::string& layers) {
  LoadOptions options;
  options.source = std::make_shared<const SourceFile>(
      "case.yaml",
      "model:\n  layers:\n    - Input: {name: ids, shape: [4], dtype: int32}\n"
      "    - Embedding: {name: table, input_dim: 7, output_dim: 4, mask_zero: true}\n" +
          layers + "compile: {loss: mse, optimizer: sgd}\n");
  options.require_data = false;
  const Config config = load_config(options);
  Built out;
  const Model model(config.model, DType::kFloat32, out.diagnostics);
  out.has_mask = model.calls().back().has_mask;
  return out;
}

TEST_CASE("most layers pass a mask on") {
  for (const char* layer :
       {"Dense: 3", "LayerNormalization", "Dropout: 0.1", "Activation: relu", "Identity",
        "BatchNormalization", "MultiHeadAttention: {num_heads: 2, key_dim: 2}",
        "GroupQueryAttention: {head_dim: 2, num_query_heads: 2, num_key_value_heads: 1}",
        "Attention: {inputs: [table, table]}", "Add: {inputs: [table, table]}",
        "Concatenate: {inputs: [table, table]}", "Concatenate: {axis: 1, inputs: [table, table]}",
        "TransformerEncoder: {intermediate_dim: 5, num_heads: 2}",
        "TransformerDecoder: {intermediate_dim: 5, num_heads: 2}", "Rescaling: {scale: 2.0}",
        "GaussianNoise: 0.1", "Masking"}) {
    CAPTURE(layer);
    const Built built = build(std::string("    - ") + layer + "\n");
    CHECK_MESSAGE(built.diagnostics.num_errors() == 0, built.diagnostics.render());
    CHECK(built.diagnostics.render().find("W630") == std::string::npos);
    CHECK(built.has_mask);
  }
}

TEST_CASE("a mask that is lost is a warning with the layer's place") {
  for (const char* layer :
       {"Flatten", "RMSNormalization", "Conv1D: {filters: 2, kernel_size: 2}", "MaxPooling1D",
        "EinsumDense: {equation: 'abc,cd->abd', output_shape: [null, 3]}", "RotaryEmbedding",
        "PositionEmbedding: 4", "Reshape: {target_shape: [2, 8]}"}) {
    CAPTURE(layer);
    const Built built = build(std::string("    - ") + layer + "\n");
    CHECK_MESSAGE(built.diagnostics.num_errors() == 0, built.diagnostics.render());
    CHECK(built.diagnostics.render().find("W630") != std::string::npos);
    CHECK_FALSE(built.has_mask);
  }
}

TEST_CASE("both sequences of a Bidirectional have the mask, its states have none") {
  const std::string layer =
      "    - Bidirectional: {name: both, merge_mode: null, layer: {GRU: {units: 3, "
      "return_sequences: true, return_state: true}}}\n";
  const Built first = build(layer + "    - Dense: {units: 2, inputs: both}\n");
  CHECK_MESSAGE(first.diagnostics.num_errors() == 0, first.diagnostics.render());
  CHECK(first.has_mask);
  CHECK(build(layer + "    - Dense: {units: 2, inputs: both.backward}\n").has_mask);
  CHECK(build(layer + "    - Add: {inputs: [both, both.backward]}\n").has_mask);
  CHECK_FALSE(build(layer + "    - Dense: {units: 2, inputs: both.forward_h}\n").has_mask);
}

TEST_CASE("a mean over steps uses the mask up") {
  const Built built = build("    - GlobalAveragePooling1D\n");
  CHECK(built.diagnostics.render().find("W630") == std::string::npos);
  CHECK_FALSE(built.has_mask);
}

TEST_CASE("Softmax refuses a mask of steps") {
  const Built built = build("    - Softmax\n");
  CHECK(built.diagnostics.num_errors() == 1);
  CHECK(built.diagnostics.render().find("takes no mask of steps") != std::string::npos);
}

ConfigObject loss_object(const char* reduction) {
  ConfigObject loss = default_object(Category::kLoss, "MeanSquaredError");
  loss.args["reduction"].data = std::string(reduction);
  return loss;
}

double masked_loss(const char* reduction, bool weighs) {
  const HostTensor y = tensor_of<double>(DType::kFloat64, {2, 2, 1}, {0, 0, 0, 0});
  const HostTensor p = tensor_of<double>(DType::kFloat64, {2, 2, 1}, {1, 2, 3, 4});
  const HostTensor mask = tensor_of<double>(DType::kBool, {2, 2}, {1, 1, 1, 0});
  const HostTensor weight = tensor_of<double>(DType::kFloat64, {2}, {2, 5});
  const auto results =
      run({&y, &p, &mask, &weight}, [&](Builder& b, const std::vector<ValueId>& in) {
        return std::vector<ValueId>{
            add_loss(b, loss_object(reduction), in[0], in[1], weighs ? in[3] : kNone, in[2])};
      });
  return results[0].at(0);
}

TEST_CASE("losses count only what the mask of the output leaves") {
  CHECK(masked_loss("sum_over_batch_size", false) == doctest::Approx((1 + 4 + 9) / 3.0));
  CHECK(masked_loss("sum", false) == doctest::Approx(1 + 4 + 9));
  CHECK(masked_loss("mean_with_sample_weight", false) == doctest::Approx((1 + 4 + 9) / 3.0));
  CHECK(masked_loss("sum_over_batch_size", true) == doctest::Approx((2 + 8 + 45) / 3.0));
  CHECK(masked_loss("sum", true) == doctest::Approx(2 + 8 + 45));
  CHECK(masked_loss("mean_with_sample_weight", true) == doctest::Approx((2 + 8 + 45) / 9.0));
}

// The masks of the outputs, by a training call.
std::vector<std::vector<double>> masks_of(const std::vector<LayerConfig>& layers,
                                          const std::vector<std::string>& outputs,
                                          const std::vector<const HostTensor*>& inputs) {
  Diagnostics diagnostics;
  const Model model(make_model_config(layers, outputs), DType::kFloat32, diagnostics);
  REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  const std::vector<HostTensor> masks =
      run(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
        std::vector<ValueId> found, out;
        model.apply(b, in, {}, true, b.constant(0, DType::kInt64), 0, nullptr, nullptr, nullptr,
                    &found);
        for (const ValueId mask : found) {
          REQUIRE(mask != kNone);
          out.push_back(b.cast(mask, DType::kFloat32));
        }
        return out;
      });
  std::vector<std::vector<double>> out;
  for (const HostTensor& mask : masks) {
    out.push_back(numbers(mask));
  }
  return out;
}

TEST_CASE("a sum has the steps of either input; a join has those of both, or all") {
  const std::vector<LayerConfig> layers = {
      make_layer_config("Input", "a", {}, {{"shape", {3, 1}}}),
      make_layer_config("Input", "b", {}, {{"shape", {3, 1}}}),
      make_layer_config("Masking", "ma", {"a"}),
      make_layer_config("Masking", "mb", {"b"}),
      make_layer_config("Add", "sum", {"ma", "mb"}),
      make_layer_config("Concatenate", "features", {"ma", "mb"}, {{"axis", -1}}),
      make_layer_config("Concatenate", "steps", {"ma", "mb"}, {{"axis", 1}}),
      make_layer_config("Concatenate", "unmasked_steps", {"ma", "b"}, {{"axis", 1}}),
      make_layer_config("Concatenate", "unmasked_features", {"ma", "b"}, {{"axis", 2}}),
  };
  const HostTensor a = floats({1, 3, 1}, {1, 0, 0}), b = floats({1, 3, 1}, {2, 2, 0});
  const auto found = masks_of(
      layers, {"sum", "features", "steps", "unmasked_steps", "unmasked_features"}, {&a, &b});
  CHECK(found[0] == std::vector<double>{1, 1, 0});
  CHECK(found[1] == std::vector<double>{1, 1, 0});
  CHECK(found[2] == std::vector<double>{1, 0, 0, 1, 1, 0});
  CHECK(found[3] == std::vector<double>{1, 0, 0, 1, 1, 1});
  CHECK(found[4] == std::vector<double>{1, 1, 1});
}

TEST_CASE("normalizations that no mask changes count masked steps as zeros") {
  const auto output = [](const char* name, const NamedArgs& args, const HostTensor& x) {
    Diagnostics diagnostics;
    const Model model(make_model_config({make_layer_config("Input", "x", {}, {{"shape", {2, 2}}}),
                                         make_layer_config("Masking", "m", {"x"}),
                                         make_layer_config(name, "n", {"m"}, args)}),
                      DType::kFloat32, diagnostics);
    REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
    CHECK(model.calls().back().has_mask);
    return numbers(run_model(model, {&x}, {}, true));
  };
  // The mean of 1, 3, 0, 0 is 1, the variance 6 / 4.
  const double root = std::sqrt(1.5);
  check_near(output("GroupNormalization", {{"groups", 1}, {"epsilon", 0.0}},
                    floats({1, 2, 2}, {1, 3, 0, 0})),
             {0, 2 / root, -1 / root, -1 / root});
  check_near(output("UnitNormalization", {}, floats({1, 2, 2}, {3, 4, 0, 0})), {0.6, 0.8, 0, 0});
}

}  // namespace
}  // namespace meshtrain::testing
