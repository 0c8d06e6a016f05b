// Warnings about attention: scores that are stored, and masks that a tied head drops.
#include <doctest/doctest.h>

#include "support/engine_case.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

// What a model of 128 steps is warned of, for batches of 32.
std::string warnings_of(const std::string& layer, const std::vector<std::string>& changes = {}) {
  const Config config = config_from(fmt::format(R"(
model:
  layers:
    - Input: {{name: x, shape: [128, 8]}}
    - {}
    - GlobalAveragePooling1D: {{}}
    - Dense: {{name: last, units: 1}}
compile: {{loss: mse}}
fit: {{batch_size: 32}}
)",
                                                layer),
                                    changes);
  return Setup(config, nullptr).warnings().render();
}

// The warnings of a small language model whose head is its table.
std::string tied_warnings(const DataSpec* data, const std::string& head) {
  static const std::string kTable =
      "    - ReversibleEmbedding: {name: tokens, input_dim: 9, output_dim: 4, mask_zero: true}\n";
  const Config config =
      config_from("model:\n  layers:\n    - Input: {shape: [6], dtype: int32}\n" + kTable + head +
                  "compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}}\n");
  return Setup(config, data).warnings().render();
}

}  // namespace

TEST_CASE("attention that stores its scores is a warning with their bytes") {
  const auto says = [](const std::string& text, const std::string& layer,
                       const std::vector<std::string>& changes = {}) {
    const std::string found = warnings_of(layer, changes);
    CHECK_MESSAGE(found.find("W126") != std::string::npos, found);
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
  };
  says(
      "`a` (MultiHeadAttention) stores its scores, (32, 2, 128, 128) float32, 4.0 MiB of a batch: "
      "`return_attention_scores` makes them an output",
      "MultiHeadAttention: {name: a, num_heads: 2, key_dim: 4, call: {return_attention_scores: "
      "true}}",
      {"model.outputs=[last, a.attention_scores]"});
  says("`a` (AdditiveAttention) stores its scores, (32, 128, 128, 8) float32, 16 MiB",
       "AdditiveAttention: {name: a, inputs: [x, x]}");
  says("`a` (Attention) stores its scores, (32, 128, 128, 8) bfloat16, 8.0 MiB",
       "Attention: {name: a, inputs: [x, x], score_mode: concat}", {"dtype_policy=mixed_bfloat16"});
  for (const char* layer :
       {"Attention: {inputs: [x, x], use_scale: true, dropout: 0.1}",
        "MultiHeadAttention: {num_heads: 2, key_dim: 4, dropout: 0.1}",
        "GroupQueryAttention: {head_dim: 4, num_query_heads: 2, num_key_value_heads: 1, call: "
        "{use_causal_mask: true}}",
        "TransformerEncoder: {num_heads: 2, intermediate_dim: 4}"}) {
    CAPTURE(layer);
    CHECK(warnings_of(layer).find("W126") == std::string::npos);
    CHECK(warnings_of(layer, {"dtype_policy=float64"}).find("W126") == std::string::npos);
  }
  // Scores of less than 1 MiB are not worth a word.
  CHECK(warnings_of("AdditiveAttention: {inputs: [x, x]}", {"fit.batch_size=1"}).find("W126") ==
        std::string::npos);
}

TEST_CASE("a tied head that drops a mask is a warning at the call, where nothing weighs padding") {
  const std::string call = "    - Call: {layer: tokens, name: logits, call: {reverse: true}}\n";
  const std::string found = tied_warnings(nullptr, call);
  CHECK_MESSAGE(found.find("[W630]: `logits` (ReversibleEmbedding, reversed) drops the mask") !=
                    std::string::npos,
                found);
  CHECK(found.find("case.yaml:5:7") != std::string::npos);
  CHECK(found.find("drops the mask", found.find("drops the mask") + 1) == std::string::npos);
  DataSpec data;
  data.inputs.push_back({{6}, DType::kInt32});
  data.targets.push_back({{6}, DType::kInt32});
  CHECK(tied_warnings(&data, call).find("W630") != std::string::npos);
  data.has_sample_weight = true;
  data.sample_weight_shape = {6};
  CHECK(tied_warnings(&data, call).find("W630") == std::string::npos);
  CHECK(tied_warnings(nullptr, "    - Dense: 9\n").find("W630") == std::string::npos);
}
