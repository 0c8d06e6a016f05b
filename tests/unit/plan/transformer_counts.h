// Two-layer transformers and the collectives of their training steps, each counted before
// bucketing: for tests that compare them with theory.
#pragma once

#include <map>
#include <string>

#include "engine/setup.h"
#include "support/engine_case.h"

namespace meshtrain::testing {

inline constexpr int kLayers = 2;
inline constexpr int kGptWeights = 16 * kLayers + 4, kLlamaWeights = 9 * kLayers + 3;
using Counts = std::map<std::string, int>;  // "backward all_reduce data" -> how many

inline constexpr const char* kGpt = R"(
blocks:
  Layer:
    inputs: [x]
    layers:
      - LayerNormalization: {name: self_attention_layer_norm, inputs: x}
      - MultiHeadAttention: {name: self_attention, num_heads: 4, key_dim: 4, call: {use_causal_mask: true}}
      - Add: {name: middle, inputs: [x, self_attention]}
      - LayerNormalization: {name: feedforward_layer_norm}
      - Dense: {name: feedforward_intermediate_dense, units: 64, activation: gelu}
      - Dense: {name: feedforward_output_dense, units: 16}
      - Add: {name: sum, inputs: [middle, feedforward_output_dense]}
model:
  layers:
    - Input: {name: token_ids, shape: [8], dtype: int32}
    - ReversibleEmbedding: {name: token_embedding, input_dim: 32, output_dim: 16}
    - PositionEmbedding: {name: position_embedding, sequence_length: 8}
    - Add: {name: embeddings_add, inputs: [token_embedding, position_embedding]}
    - Repeat: {times: 2, name: "layer_{i}", block: Layer}
    - LayerNormalization: {name: layer_norm}
    - Call: {layer: token_embedding, name: logits, call: {reverse: true}}
)";
inline constexpr const char* kLlama = R"(
blocks:
  Layer:
    inputs: [x]
    layers:
      - RMSNormalization: {name: self_attention_layernorm, inputs: x}
      - GroupQueryAttention: {name: self_attention, head_dim: 4, num_query_heads: 4, num_key_value_heads: 2,
          use_bias: false, rotary: {RotaryEmbedding: {}}, call: {use_causal_mask: true}}
      - Add: {name: middle, inputs: [x, self_attention]}
      - RMSNormalization: {name: feedforward_layernorm}
      - Dense: {name: feedforward_gate_dense, units: 64, activation: silu, use_bias: false}
      - Dense: {name: feedforward_intermediate_dense, inputs: feedforward_layernorm, units: 64, use_bias: false}
      - Multiply: {name: gated, inputs: [feedforward_gate_dense, feedforward_intermediate_dense]}
      - Dense: {name: feedforward_output_dense, units: 16, use_bias: false}
      - Add: {name: sum, inputs: [middle, feedforward_output_dense]}
model:
  layers:
    - Input: {name: token_ids, shape: [8], dtype: int32}
    - Embedding: {name: token_embedding, input_dim: 32, output_dim: 16}
    - Repeat: {times: 2, name: "layer_{i}", block: Layer}
    - RMSNormalization: {name: layer_norm}
    - Dense: {name: logits, units: 32, use_bias: false}
)";

inline constexpr const char* kTensorParallel = R"(  layout_map:
    .*/(query|key|value)/kernel: [null, model, null]
    .*/(query|key|value)/bias: [model, null]
    .*/attention_output/kernel: [model, null, null]
    .*/feedforward_intermediate_dense/kernel: [null, model]
    .*/feedforward_intermediate_dense/bias: [model]
    .*/feedforward_output_dense/kernel: [model, null]
)";
inline constexpr const char* kLlamaParallel = R"(  layout_map:
    .*/(query|key|value)/kernel: [null, model, null]
    .*/attention_output/kernel: [model, null, null]
    .*/feedforward_(gate|intermediate)_dense/kernel: [null, model]
    .*/feedforward_output_dense/kernel: [model, null]
)";

// One line for each, in the order of the names.
inline std::string text(const Counts& counts) {
  std::string out;
  for (const auto& [collective, count] : counts) {
    out += fmt::format("{}: {}\n", collective, count);
  }
  return out;
}

inline std::string counts(const char* model, const std::string& mesh, const std::string& more) {
  const Config config = test::config_from(
      std::string(model) +
      "compile: {optimizer: adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}\n"
      "fit: {batch_size: 8}\ndistribution:\n  device_mesh: " +
      mesh + "\n" + more);
  const Setup setup(config, nullptr);
  const DeviceMesh& axes = setup.mesh();
  Counts out;
  for (const Node& node : setup.compile(StepKind::kTrain, 8, /*bucket=*/false).graph.nodes) {
    if (!node.op->collective || node.op->name == "shard_slice") {
      continue;
    }
    std::string key = fmt::format("{} {}", phase_name(node.phase), node.op->name);
    for (const int64_t axis : node.attr_ints("axes")) {
      key += " " + axes.axis_name(static_cast<int>(axis));
    }
    ++out[key];
  }
  return text(out);
}

}  // namespace meshtrain::testing
