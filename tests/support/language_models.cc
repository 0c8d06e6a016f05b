#include "support/language_models.h"

#include <fmt/format.h>

#include "support/engine_case.h"
#include "support/splitmix.h"

namespace meshtrain::test {
namespace {

// `places`: an argument of the attention, where it rotates queries and keys.
std::string gpt_layer(double dropout, const std::string& places) {
  return fmt::format(R"(
      - LayerNormalization: {{name: attention_norm, inputs: x}}
      - MultiHeadAttention: {{name: self_attention, num_heads: 4, key_dim: 4, dropout: {0}, {1}
          call: {{use_causal_mask: true}}}}
      - Dropout: {{name: attention_dropout, rate: {0}}}
      - Add: {{name: middle, inputs: [x, attention_dropout]}}
      - LayerNormalization: {{name: feedforward_norm}}
      - Dense: {{name: feedforward_intermediate_dense, units: 32, activation: gelu}}
      - Dense: {{name: feedforward_output_dense, units: 16}}
      - Dropout: {{name: feedforward_dropout, rate: {0}}}
      - Add: {{name: sum, inputs: [middle, feedforward_dropout]}}
)",
                     dropout, places);
}

constexpr const char* kGated = R"(
      - Dense: {name: feedforward_gate_dense, units: 32, activation: silu, use_bias: false}
      - Dense: {name: feedforward_intermediate_dense, inputs: feedforward_norm, units: 32, use_bias: false}
      - Multiply: {name: gated, inputs: [feedforward_gate_dense, feedforward_intermediate_dense]}
      - Dense: {name: feedforward_output_dense, units: 16, use_bias: false}
)";

std::string llama_layer(const LanguageModel& model, const std::string& norm) {
  const std::string feedforward = model.family == LanguageFamily::kLlama
                                      ? kGated
                                      : fmt::format(
                                            "\n      - SparseMoE: {{name: experts, num_experts: 4, "
                                            "intermediate_dim: 16, capacity_factor: {}}}\n",
                                            model.capacity);
  return fmt::format(R"(
      - {0}: {{name: attention_norm, inputs: x}}
      - GroupQueryAttention: {{name: self_attention, head_dim: 4, num_query_heads: 4, use_bias: false,
          num_key_value_heads: {1}, dropout: {2}, rotary: {{RotaryEmbedding: {{}}}},
          call: {{use_causal_mask: true}}}}
      - Add: {{name: middle, inputs: [x, self_attention]}}
      - {0}: {{name: feedforward_norm}}{3}      - Dropout: {{name: feedforward_dropout, rate: {2}}}
      - Add: {{name: sum, inputs: [middle, feedforward_dropout]}}
)",
                     norm, model.key_heads, model.dropout, feedforward);
}

}  // namespace

std::string yaml_of(const LanguageModel& model, const std::string& optimizer) {
  const bool is_gpt = model.family == LanguageFamily::kGpt;
  const bool has_table = is_gpt && !model.masks_zero;  // of positions
  const std::string norm = is_gpt || model.masks_zero ? "LayerNormalization" : "RMSNormalization";
  return fmt::format(
      R"(
blocks:
  Layer:
    inputs: [x]
    layers:{layer}model:
  layers:
    - Input: {{name: token_ids, shape: [{steps}], dtype: int32}}
    - {table}: {{name: token_embedding, input_dim: {ids}, output_dim: 16, mask_zero: {masks}}}
{places}    - Repeat: {{times: 2, name: "layer_{{i}}", block: Layer, remat: {remat}}}
    - {norm}: {{name: layer_norm}}
    - {head}
compile: {{optimizer: {optimizer}, loss: {{SparseCategoricalCrossentropy: {{from_logits: true}}}}}}
)",
      fmt::arg("layer",
               is_gpt ? gpt_layer(model.dropout, has_table ? "" : "rotary: {RotaryEmbedding: {}},")
                      : llama_layer(model, norm)),
      fmt::arg("steps", kModelSteps), fmt::arg("ids", kModelIds),
      fmt::arg("table", model.ties_head ? "ReversibleEmbedding" : "Embedding"),
      fmt::arg("masks", model.masks_zero),
      fmt::arg(
          "places",
          has_table
              ? fmt::format("    - PositionEmbedding: {{name: position_embedding, sequence_length: "
                            "{}}}\n    - Add: {{name: embeddings_add, inputs: [token_embedding, "
                            "position_embedding]}}\n",
                            kModelSteps)
              : ""),
      fmt::arg("remat", model.remat), fmt::arg("norm", norm),
      fmt::arg("head",
               model.ties_head
                   ? "Call: {layer: token_embedding, name: logits, call: {reverse: true}}"
                   : fmt::format("Dense: {{name: logits, units: {}, use_bias: false}}", kModelIds)),
      fmt::arg("optimizer", optimizer));
}

Dataset random_sequences(int64_t samples, uint64_t seed) {
  HostTensor x(DType::kInt32, {samples, kModelSteps}), y(DType::kInt32, {samples, kModelSteps});
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    x.set(i, static_cast<double>(splitmix_below(2 * seed, at, kModelIds)));
    y.set(i, static_cast<double>(splitmix_below(2 * seed + 1, at, kModelIds)));
  }
  return dataset_of(std::move(x), std::move(y));
}

}  // namespace meshtrain::test
