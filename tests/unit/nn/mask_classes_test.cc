// What every class of layers makes of a mask of steps.
// Source: supports_masking and compute_mask of Keras 3.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "config/cells.h"
#include "config/load.h"
#include "nn/masks.h"
#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

// Layers whose last output `x` has a mask.
const std::string kMaskedSteps =
    "    - Input: {name: ids, shape: [4], dtype: int32}\n"
    "    - Embedding: {name: x, input_dim: 7, output_dim: 4, mask_zero: true, inputs: ids}\n";
const std::string kMaskedImages =
    "    - Input: {name: rows, shape: [4, 18]}\n    - Masking\n"
    "    - TimeDistributed: {name: x, layer: {Reshape: [6, 3]}}\n";
const std::string kMaskedVolumes =
    "    - Input: {name: planes, shape: [4, 32]}\n    - Masking\n"
    "    - TimeDistributed: {name: x, layer: {Reshape: [4, 4, 2]}}\n";

struct MaskOutcome {
  bool is_valid = false, is_warned = false, has_mask = false;
  std::string text;
};

// `plain` in the layers is an input like that of `kMaskedSteps`, without a mask.
MaskOutcome outcome_of(const std::string& layers) {
  const bool has_plain = layers.find("plain") != std::string::npos;
  const std::string plain = has_plain ? "    - Input: {name: plain, shape: [4, 4]}\n" : "";
  LoadOptions options;
  options.source =
      std::make_shared<const SourceFile>("case.yaml", "model:\n  layers:\n" + plain + layers +
                                                          "compile: {loss: mse, optimizer: sgd}\n");
  options.require_data = false;
  const Config config = load_config(options);
  Diagnostics diagnostics;
  const Model model(config.model, DType::kFloat32, diagnostics);
  const std::string text = diagnostics.render();
  return {diagnostics.num_errors() == 0, text.find("W630") != std::string::npos,
          model.calls().back().has_mask, text};
}

std::string class_name_of(const std::string& entry) {
  return entry.substr(0, entry.find(':'));
}

using Entries = std::vector<std::string>;

const Entries kPassOfSteps = {
    "Dense: 3",
    "Activation: relu",
    "ReLU",
    "LeakyReLU",
    "PReLU",
    "ELU",
    "Identity",
    "ActivityRegularization: {l1: 0.1}",
    "LayerNormalization",
    "BatchNormalization",
    "GroupNormalization: {groups: 2}",
    "UnitNormalization",
    "Dropout: 0.1",
    "SpatialDropout1D: 0.1",
    "AlphaDropout: 0.1",
    "GaussianNoise: 0.1",
    "GaussianDropout: 0.1",
    "Rescaling: {scale: 2.0}",
    "Normalization: {mean: 0.0, variance: 1.0}",
    "MultiHeadAttention: {num_heads: 2, key_dim: 2}",
    "GroupQueryAttention: {head_dim: 2, num_query_heads: 2, num_key_value_heads: 1}",
    "Attention: {inputs: [x, plain]}",
    "AdditiveAttention: {inputs: [x, plain]}",
    "TransformerEncoder: {intermediate_dim: 5, num_heads: 2}",
    "TransformerDecoder: {intermediate_dim: 5, num_heads: 2}",
    "SparseMoE: {num_experts: 2, intermediate_dim: 3}",
    "TimeDistributed: {layer: {Dense: 3}}",
    "SpectralNormalization: {layer: {Dense: {units: 3}}}"};
const Entries kCombineOfSteps = {"Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"};
const Entries kRecurrentOfSteps = {"SimpleRNN: {units: 3, return_sequences: SEQUENCES}",
                                   "LSTM: {units: 3, return_sequences: SEQUENCES}",
                                   "GRU: {units: 3, return_sequences: SEQUENCES}",
                                   "RNN: {cell: {LSTMCell: 3}, return_sequences: SEQUENCES}",
                                   "Bidirectional: {layer: {GRU: {units: 3, return_sequences: "
                                   "SEQUENCES}}}"};
const Entries kDropOfSteps = {"Flatten",
                              "Reshape: [2, 8]",
                              "Permute: [2, 1]",
                              "EinsumDense: {equation: 'abc,cd->abd', output_shape: [null, 3]}",
                              "Dot: {axes: 2, inputs: [x, x]}",
                              "Lambda: {function: \"=x * 2\"}",
                              "LayerScale: {init_values: 0.5, projection_dim: 4}",
                              "StochasticDepth: 0.4",
                              "CustomScaleLayer: {scale: 0.3, inputs: [x, x]}",
                              "Discretization: {bin_boundaries: [0.0]}",
                              "PositionEmbedding: 4",
                              "SinePositionEncoding",
                              "RotaryEmbedding",
                              "Conv1D: {filters: 2, kernel_size: 2}",
                              "DepthwiseConv1D: {kernel_size: 2}",
                              "SeparableConv1D: {filters: 2, kernel_size: 2}",
                              "Conv1DTranspose: {filters: 2, kernel_size: 2}",
                              "MaxPooling1D",
                              "AveragePooling1D",
                              "GlobalMaxPooling1D",
                              "AdaptiveAveragePooling1D: {output_size: 2}",
                              "AdaptiveMaxPooling1D: {output_size: 2}",
                              "ZeroPadding1D: 1",
                              "Cropping1D: 1",
                              "UpSampling1D: 2",
                              "RMSNormalization"};
const Entries kDropOfImages = {"Conv2D: {filters: 2, kernel_size: 2}",
                               "DepthwiseConv2D: {kernel_size: 2}",
                               "SeparableConv2D: {filters: 2, kernel_size: 2}",
                               "Conv2DTranspose: {filters: 2, kernel_size: 2}",
                               "MaxPooling2D",
                               "AveragePooling2D",
                               "GlobalAveragePooling2D",
                               "GlobalMaxPooling2D",
                               "AdaptiveAveragePooling2D: {output_size: 2}",
                               "AdaptiveMaxPooling2D: {output_size: 2}",
                               "ZeroPadding2D: 1",
                               "Cropping2D: 1",
                               "UpSampling2D: 2",
                               "Resizing: {height: 2, width: 2}",
                               "CenterCrop: {height: 2, width: 2}",
                               "RandomFlip",
                               "RandomContrast: 0.1"};
const Entries kDropOfVolumes = {"Conv3D: {filters: 2, kernel_size: 2}",
                                "Conv3DTranspose: {filters: 2, kernel_size: 2}",
                                "MaxPooling3D",
                                "AveragePooling3D",
                                "GlobalAveragePooling3D",
                                "GlobalMaxPooling3D",
                                "AdaptiveAveragePooling3D: {output_size: 2}",
                                "AdaptiveMaxPooling3D: {output_size: 2}",
                                "ZeroPadding3D: 1",
                                "Cropping3D: 1",
                                "UpSampling3D: 2"};

TEST_CASE("classes that pass a mask on, all of them") {
  const auto check = [](const std::string& stem, const std::string& entry) {
    CAPTURE(entry);
    const MaskOutcome found = outcome_of(stem + "    - " + entry + "\n");
    CHECK_MESSAGE(found.is_valid, found.text);
    CHECK_FALSE(found.is_warned);
    CHECK(found.has_mask);
  };
  for (const std::string& entry : kPassOfSteps) {
    check(kMaskedSteps, entry);
  }
  check(kMaskedImages, "SpatialDropout2D: 0.1");
  check(kMaskedVolumes, "SpatialDropout3D: 0.1");
  check(kMaskedSteps, "MergeSteps: {name: merged}\n    - SplitSteps: {inputs: [merged, x]}");
}

TEST_CASE("attention passes the mask of its queries on, not that of its keys") {
  for (const std::string name : {"MultiHeadAttention: {num_heads: 2, key_dim: 2",
                                 "GroupQueryAttention: {head_dim: 2, num_query_heads: 2, "
                                 "num_key_value_heads: 1"}) {
    CAPTURE(name);
    CHECK(outcome_of(kMaskedSteps + "    - " + name + ", inputs: {query: x, value: plain}}\n")
              .has_mask);
    CHECK_FALSE(outcome_of(kMaskedSteps + "    - " + name + ", inputs: {query: plain, value: x}}\n")
                    .has_mask);
  }
  for (const std::string name : {"Attention", "AdditiveAttention"}) {
    CHECK_FALSE(outcome_of(kMaskedSteps + "    - " + name + ": {inputs: [plain, x]}\n").has_mask);
  }
}

TEST_CASE("sums and their like need a mask on each input, joins on one") {
  for (const std::string& name : kCombineOfSteps) {
    CAPTURE(name);
    const MaskOutcome both = outcome_of(kMaskedSteps + "    - " + name + ": {inputs: [x, x]}\n");
    CHECK_MESSAGE(both.is_valid, both.text);
    CHECK(both.has_mask);
    CHECK_FALSE(both.is_warned);
    for (const std::string inputs : {"[x, plain]", "[plain, x]"}) {
      const MaskOutcome one =
          outcome_of(kMaskedSteps + "    - " + name + ": {inputs: " + inputs + "}\n");
      CHECK_FALSE(one.has_mask);
      CHECK(one.is_warned);
    }
  }
  for (const std::string axis : {"1", "2", "-1"}) {
    for (const std::string inputs : {"[x, x]", "[x, plain]", "[plain, x]"}) {
      CAPTURE(inputs);
      const MaskOutcome found = outcome_of(kMaskedSteps + "    - Concatenate: {axis: " + axis +
                                           ", inputs: " + inputs + "}\n");
      CHECK(found.has_mask);
      CHECK_FALSE(found.is_warned);
    }
  }
  for (const std::string inputs : {"[x, x]", "[x, plain]", "[plain, x]"}) {
    const MaskOutcome dot =
        outcome_of(kMaskedSteps + "    - Dot: {axes: 2, inputs: " + inputs + "}\n");
    CHECK_FALSE(dot.has_mask);
    CHECK(dot.is_warned);
  }
}

TEST_CASE("recurrent layers pass the mask on with their sequences alone") {
  for (const std::string& entry : kRecurrentOfSteps) {
    for (const bool has_sequences : {true, false}) {
      CAPTURE(entry);
      std::string layer = entry;
      layer.replace(layer.find("SEQUENCES"), 9, has_sequences ? "true" : "false");
      const MaskOutcome found = outcome_of(kMaskedSteps + "    - " + layer + "\n");
      CHECK_MESSAGE(found.is_valid, found.text);
      CHECK(found.has_mask == has_sequences);
      CHECK_FALSE(found.is_warned);
    }
  }
}

TEST_CASE("classes that drop a mask warn") {
  for (const auto& [stem, entries] : {std::pair(&kMaskedSteps, &kDropOfSteps),
                                      {&kMaskedImages, &kDropOfImages},
                                      {&kMaskedVolumes, &kDropOfVolumes}}) {
    for (const std::string& entry : *entries) {
      CAPTURE(entry);
      const MaskOutcome found = outcome_of(*stem + "    - " + entry + "\n");
      CHECK_MESSAGE(found.is_valid, found.text);
      CHECK(found.is_warned);
      CHECK_FALSE(found.has_mask);
    }
  }
}

TEST_CASE("tables make a mask where they are asked to") {
  const std::string ids = "    - Input: {name: ids, shape: [4], dtype: int32}\n    - ";
  for (const std::string entry :
       {"Embedding: {input_dim: 7, output_dim: 4",
        "ReversibleEmbedding: {input_dim: 7, output_dim: 4",
        "TokenAndPositionEmbedding: {vocabulary_size: 7, sequence_length: 4, embedding_dim: 4"}) {
    CAPTURE(entry);
    CHECK(outcome_of(ids + entry + ", mask_zero: true}\n").has_mask);
    CHECK_FALSE(outcome_of(ids + entry + "}\n").has_mask);
  }
  // Logits from a table have no mask. Setup warns of it, where the data have no weights for padding
  // (engine/model_warnings.h).
  const MaskOutcome logits = outcome_of(
      ids +
      "ReversibleEmbedding: {name: table, input_dim: 7, output_dim: 4, mask_zero: true}\n"
      "    - Call: {layer: table, name: logits, call: {reverse: true}}\n");
  CHECK_FALSE(logits.is_warned);
  CHECK_FALSE(logits.has_mask);
}

TEST_CASE("attention's output has the mask that its queries are given") {
  const std::string given = "    - Input: {name: seen, shape: [4], dtype: bool}\n";
  for (const char* name : {"Attention", "AdditiveAttention"}) {
    const MaskOutcome outcome = outcome_of(
        given +
        fmt::format("    - {}: {{inputs: {{query: plain, value: plain, query_mask: seen}}}}\n",
                    name));
    CHECK_MESSAGE(outcome.is_valid, outcome.text);
    CHECK(outcome.has_mask);
  }
  CHECK_FALSE(outcome_of(given + "    - Attention: {inputs: {query: plain, value: plain, "
                                 "value_mask: seen}}\n")
                  .has_mask);
}

TEST_CASE("every other class of the catalogue drops masks") {
  std::set<std::string> kept = {"Concatenate", "SplitSteps", "SpatialDropout2D",
                                "SpatialDropout3D"};
  for (const Entries* entries : {&kPassOfSteps, &kCombineOfSteps, &kRecurrentOfSteps}) {
    for (const std::string& entry : *entries) {
      kept.insert(class_name_of(entry));
    }
  }
  // Of what is wrapped (SpectralNormalization), or not called (cells, entries of a config).
  const std::set<std::string> others = {"SpectralNormalization", "Input", "Call", "Repeat"};
  const std::map<std::string, MaskEffect> special = {
      {"Embedding", MaskEffect::kProduce},
      {"ReversibleEmbedding", MaskEffect::kProduce},
      {"TokenAndPositionEmbedding", MaskEffect::kProduce},
      {"Masking", MaskEffect::kProduce},
      {"GlobalAveragePooling1D", MaskEffect::kConsume},
      {"MergeSteps", MaskEffect::kConsume},
      {"Softmax", MaskEffect::kRefuse},
      {"ConvLSTM1D", MaskEffect::kSteps},
      {"ConvLSTM2D", MaskEffect::kSteps},
      {"ConvLSTM3D", MaskEffect::kSteps},
  };
  for (const std::string& name : names_of(Category::kLayer, others)) {
    CAPTURE(name);
    const MaskEffect effect = mask_effect(name);
    if (special.contains(name)) {
      CHECK(effect == special.at(name));
    } else if (!is_cell_class(name)) {
      CHECK((effect == MaskEffect::kDrop) == !kept.contains(name));
    }
  }
}

}  // namespace
}  // namespace meshtrain::testing
