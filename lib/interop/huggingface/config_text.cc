#include "interop/huggingface/config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/printable.h"
#include "base/text.h"
#include "config/flow.h"

namespace meshtrain {
namespace {

std::string decoder_head(const HuggingFaceModel& m) {
  return m.has_head ? "    - Call: {layer: token_embedding, name: logits, call: {reverse: true}}\n"
                    : "";
}

constexpr const char* kMaskInput =
    "    - Input: {name: padding_mask, shape: [=context], dtype: int32}\n";

std::string token_table(const HuggingFaceModel& m) {
  return fmt::format(
      "    - Input: {{name: token_ids, shape: [=context], dtype: int32}}\n"
      "{}"
      "    - ReversibleEmbedding: {{name: token_embedding, {}input_dim: {}, output_dim: {}{}}}\n",
      m.has_padding_mask ? kMaskInput : "", m.has_padding_mask ? "inputs: token_ids, " : "",
      m.tokens, m.width, m.has_head && !m.is_tied ? ", tie_weights: false" : "");
}

// The arguments by which the attention of a decoder knows of padding; empty where it does not.
std::string masked_inputs(const HuggingFaceModel& m, const std::string& x) {
  return m.has_padding_mask
             ? fmt::format("inputs: {{query: {0}, value: {0}, value_mask: padding_mask}}", x)
             : "";
}

// A Dropout, where there is any.
std::string dropout(const std::string& indent, const std::string& name, double rate) {
  return rate == 0 ? "" : fmt::format("{}- Dropout: {{name: {}, rate: {}}}\n", indent, name, rate);
}
std::string dropped_or(const std::string& dropped, const std::string& plain, double rate) {
  return rate == 0 ? plain : dropped;
}

std::string gpt2_block(const HuggingFaceModel& m) {
  const std::string indent = "      ", inputs = masked_inputs(m, "self_attention_layer_norm");
  return fmt::format(
      "      - LayerNormalization: {{name: self_attention_layer_norm, inputs: x, epsilon: {}}}\n"
      "      - MultiHeadAttention:\n"
      "          {{name: self_attention, {}num_heads: {}, key_dim: {}, dropout: {}, call: "
      "{{use_causal_mask: true}}}}\n"
      "{}"
      "      - Add: {{name: middle, inputs: [x, {}]}}\n"
      "      - LayerNormalization: {{name: feedforward_layer_norm, epsilon: {}}}\n"
      "      - Dense: {{name: feedforward_intermediate_dense, units: {}, activation: {}}}\n"
      "      - Dense: {{name: feedforward_output_dense, units: {}}}\n"
      "{}"
      "      - Add: {{name: sum, inputs: [middle, {}]}}\n",
      m.epsilon, inputs.empty() ? "" : inputs + ", ", m.heads, m.head_size, m.attention_dropout,
      dropout(indent, "self_attention_dropout", m.dropout),
      dropped_or("self_attention_dropout", "self_attention", m.dropout), m.epsilon, m.inner,
      activation_text(m.activation), m.width, dropout(indent, "feedforward_dropout", m.dropout),
      dropped_or("feedforward_dropout", "feedforward_output_dense", m.dropout));
}

std::string rotary(const RopeSettings& rope) {
  std::string out = fmt::format("max_wavelength: {}", rope.theta);
  if (rope.type == RopeSettings::Type::kLinear) {
    out += fmt::format(", scaling_factor: {}", rope.factor);
  } else if (rope.type == RopeSettings::Type::kLlama3) {
    out += fmt::format(
        ", frequency_adjustment_factor: {}, low_freq_factor: {}, high_freq_factor: {}, "
        "pretraining_sequence_length: {}",
        rope.factor, rope.low_freq_factor, rope.high_freq_factor, rope.original_positions);
  }
  return fmt::format("{{RotaryEmbedding: {{{}}}}}", out);
}

std::string llama_block(const HuggingFaceModel& m) {
  const std::string inputs = masked_inputs(m, "self_attention_layernorm");
  return fmt::format(
      "      - RMSNormalization: {{name: self_attention_layernorm, inputs: x, epsilon: {0}}}\n"
      "      - GroupQueryAttention:\n"
      "          name: self_attention\n"
      "{11}"
      "          head_dim: {1}\n"
      "          num_query_heads: {2}\n"
      "          num_key_value_heads: {3}\n"
      "          dropout: {4}\n"
      "          use_bias: {5}\n"
      "          rotary: {6}\n"
      "{12}"
      "          call: {{use_causal_mask: true}}\n"
      "      - Add: {{name: middle, inputs: [x, self_attention]}}\n"
      "      - RMSNormalization: {{name: feedforward_layernorm, epsilon: {0}}}\n"
      "      - Dense: {{name: feedforward_gate_dense, units: {7}, activation: {8}, use_bias: "
      "{9}}}\n"
      "      - Dense: {{name: feedforward_intermediate_dense, inputs: feedforward_layernorm, "
      "units: "
      "{7}, use_bias: {9}}}\n"
      "      - Multiply: {{name: gated, inputs: [feedforward_gate_dense, "
      "feedforward_intermediate_dense]}}\n"
      "      - Dense: {{name: feedforward_output_dense, units: {10}, use_bias: {9}}}\n"
      "      - Add: {{name: sum, inputs: [middle, feedforward_output_dense]}}\n",
      m.epsilon, m.head_size, m.heads, m.key_heads, m.attention_dropout, m.attention_bias,
      rotary(m.rope), m.inner, activation_text(m.activation), m.feedforward_bias, m.width,
      inputs.empty() ? "" : fmt::format("          {}\n", inputs),
      m.sliding_window == 0 ? "" : fmt::format("          sliding_window: {}\n", m.sliding_window));
}

std::string decoder_blocks(const HuggingFaceModel& m) {
  return fmt::format("blocks:\n  DecoderLayer:\n    inputs: [x{}]\n    layers:\n{}\n",
                     m.has_padding_mask ? ", padding_mask" : "",
                     m.family == HuggingFaceFamily::kGpt2 ? gpt2_block(m) : llama_block(m));
}

// `before`: the layer in front of the blocks.
std::string decoder_repeat(const HuggingFaceModel& m, const std::string& before) {
  return fmt::format(
      "    - Repeat: {{times: {}, name: \"transformer_layer_{{i}}\", block: DecoderLayer{}}}\n",
      m.depth, m.has_padding_mask ? fmt::format(", inputs: [{}, padding_mask]", before) : "");
}

std::string gpt2_layers(const HuggingFaceModel& m) {
  return token_table(m) +
         fmt::format(
             "    - PositionEmbedding: {{name: position_embedding, sequence_length: {}}}\n"
             "    - Add: {{name: embeddings_add, inputs: [token_embedding, position_embedding]}}\n",
             m.positions) +
         dropout("    ", "embeddings_dropout", m.embedding_dropout) +
         decoder_repeat(m,
                        dropped_or("embeddings_dropout", "embeddings_add", m.embedding_dropout)) +
         fmt::format("    - LayerNormalization: {{name: layer_norm, epsilon: {}}}\n", m.epsilon) +
         decoder_head(m);
}

std::string llama_layers(const HuggingFaceModel& m) {
  return token_table(m) + decoder_repeat(m, "token_embedding") +
         fmt::format("    - RMSNormalization: {{name: sequence_output_layernorm, epsilon: {}}}\n",
                     m.epsilon) +
         decoder_head(m);
}

std::string encoder_arguments(const HuggingFaceModel& m, bool is_norm_first) {
  return fmt::format(
      "intermediate_dim: {}, num_heads: {}, dropout: {}, activation: {}, layer_norm_epsilon: "
      "{}{}",
      m.inner, m.heads, m.dropout, activation_text(m.activation), m.epsilon,
      is_norm_first ? ", normalize_first: true" : "");
}

// The first token, the pooler and the classifier.
std::string encoder_head(const HuggingFaceModel& m) {
  std::string out;
  if (m.has_pooler || m.has_head) {
    out += m.has_mean_pooling
               ? "    - Lambda: {name: mean_of_tokens, function: \"=mean(x, axis=1)\"}\n"
               : "    - Lambda: {name: first_token, function: \"=x[:, 0]\"}\n";
  }
  if (m.has_pooler) {
    out +=
        fmt::format("    - Dense: {{name: pooled_dense, units: {}, activation: tanh}}\n", m.width);
  }
  if (m.has_head) {
    out += dropout("    ", "head_dropout", m.head_dropout);
    out += fmt::format(
        "    - Dense: {{name: classifier, units: {}{}}}\n", m.classes,
        m.head_activation.empty() ? "" : fmt::format(", activation: {}", m.head_activation));
  } else if (m.has_pooler) {
    const std::string sequence = m.family == HuggingFaceFamily::kVit
                                     ? "layer_norm"
                                     : fmt::format("transformer_layer_{}", m.depth - 1);
    out += m.has_named_outputs
               ? fmt::format("  outputs: {{sequence_output: {}, pooled_output: pooled_dense}}\n",
                             sequence)
               : fmt::format("  outputs: [{}, pooled_dense]\n", sequence);
  }
  return out;
}

// `sequence`: the last block.
std::string masked_head(const HuggingFaceModel& m, const std::string& sequence) {
  return fmt::format(
      "    - MaskedLMHead:\n"
      "        name: masked_lm_head\n"
      "        inputs: [{}, mask_positions]\n"
      "        token_embedding: token_embedding\n"
      "        intermediate_activation: {}\n"
      "        layer_norm_epsilon: {}\n",
      sequence, m.head_activation.empty() ? activation_text(m.activation) : m.head_activation,
      m.head_epsilon == 0 ? m.epsilon : m.head_epsilon);
}

std::string bert_layers(const HuggingFaceModel& m) {
  std::string out =
      "    - Input: {name: token_ids, shape: [=context], dtype: int32}\n"
      "    - Input: {name: segment_ids, shape: [=context], dtype: int32}\n";
  out += kMaskInput;
  out += m.is_masked ? "    - Input: {name: mask_positions, shape: [=masks], dtype: int32}\n" : "";
  out += fmt::format(
      "    - {5}: {{name: token_embedding, inputs: token_ids, input_dim: {0}, output_dim: "
      "{1}}}\n"
      "    - PositionEmbedding: {{name: position_embedding, sequence_length: {2}}}\n"
      "    - Embedding: {{name: segment_embedding, inputs: segment_ids, input_dim: {3}, "
      "output_dim: {1}}}\n"
      "    - Add: {{name: embeddings_add, inputs: [token_embedding, position_embedding, "
      "segment_embedding]}}\n"
      "    - LayerNormalization: {{name: embeddings_layer_norm, epsilon: {4}}}\n",
      m.tokens, m.width, m.positions, m.segments, m.epsilon,
      m.is_masked ? "ReversibleEmbedding" : "Embedding");
  out += dropout("    ", "embeddings_dropout", m.embedding_dropout);
  std::string before =
      dropped_or("embeddings_dropout", "embeddings_layer_norm", m.embedding_dropout);
  for (int64_t i = 0; i < m.depth; ++i) {
    const std::string name = fmt::format("transformer_layer_{}", i);
    out += fmt::format(
        "    - TransformerEncoder: {{name: {}, inputs: {{inputs: {}, padding_mask: "
        "padding_mask}}, {}}}\n",
        name, before, encoder_arguments(m, false));
    before = name;
  }
  return out + (m.is_masked ? masked_head(m, before) : encoder_head(m));
}

std::string vit_layers(const HuggingFaceModel& m) {
  return fmt::format(
             "    - Input: {{name: images, shape: [{0}, {1}, {2}]}}\n"
             "    - ViTPatchingAndEmbedding:\n"
             "        {{name: patching_and_embedding, image_size: [{0}, {1}], patch_size: [{3}, "
             "{3}], hidden_dim: {4}, num_channels: {2}}}\n",
             m.height, m.image_width, m.channels, m.patch, m.width) +
         dropout("    ", "embeddings_dropout", m.embedding_dropout) +
         fmt::format(
             "    - Repeat:\n"
             "        times: {}\n"
             "        name: \"transformer_layer_{{i}}\"\n"
             "        block: TransformerEncoder\n"
             "        with: {{{}}}\n"
             "    - LayerNormalization: {{name: layer_norm, epsilon: {}}}\n",
             m.depth, encoder_arguments(m, true), m.epsilon) +
         encoder_head(m);
}

std::string layers(const HuggingFaceModel& m) {
  switch (m.family) {
    case HuggingFaceFamily::kGpt2:
      return gpt2_layers(m);
    case HuggingFaceFamily::kLlama:
      return llama_layers(m);
    case HuggingFaceFamily::kBert:
      return bert_layers(m);
    case HuggingFaceFamily::kVit:
      return vit_layers(m);
  }
  return "";
}

std::string head(const HuggingFaceModel& m, const ConfigTextOptions& options) {
  std::string out = fmt::format("# {} of `{}`, imported by meshtrain.\n", m.architecture,
                                printable(options.name));
  for (const std::string& line : options.dropped) {
    out += "# not taken over: " + without_controls(line) + "\n";
  }
  return out + "version: 1\n" +
         (options.name.empty() ? "" : fmt::format("name: {}\n", yaml_text(options.name))) + "\n";
}

// What `export --format hf` writes as it was.
std::string extras(const HuggingFaceExtras& extras) {
  std::vector<std::string> ids;
  for (const auto& [key, values] : extras.token_ids) {
    ids.push_back(values.size() == 1 ? fmt::format("{}: {}", key, values[0])
                                     : fmt::format("{}: [{}]", key, fmt::join(values, ", ")));
  }
  std::string out = ids.empty() ? "" : fmt::format("  token_ids: {{{}}}\n", join(ids, ", "));
  out += extras.class_names.empty() ? "" : "  class_names:\n";
  for (const std::string& name : extras.class_names) {
    out += fmt::format("    - {}\n", yaml_text(name));
  }
  return out;
}

// Texts in the tokens of the model: a line is a text where padding can be said, else windows.
std::string data(const HuggingFaceModel& model, const ConfigTextOptions& options) {
  if (!options.has_tokenizer) {
    return "";
  }
  std::string more;
  if (!model.has_padding_mask) {
    more = "    sequence_length: =context\n    target: sequence\n";
    more +=
        options.separator ? fmt::format("    document_separator: {}\n", *options.separator) : "";
  } else {
    more = "    max_length: =context\n";
    for (const auto& [key, token] : {std::pair{"start_token", options.start_token},
                                     std::pair{"end_token", options.end_token}}) {
      more += token.empty() ? "" : fmt::format("    {}: {}\n", key, yaml_text(token));
    }
  }
  return fmt::format(
      "data:\n  train:\n    source: {}\n    path: train.txt  # the text to train on\n    "
      "vocabulary: {{tokenizer: .}}\n{}\n",
      model.has_padding_mask ? "lines" : "text", more);
}

}  // namespace

std::string huggingface_yaml(const HuggingFaceModel& model, const ConfigTextOptions& options) {
  const bool is_vit = model.family == HuggingFaceFamily::kVit;
  const bool is_decoder =
      model.family == HuggingFaceFamily::kGpt2 || model.family == HuggingFaceFamily::kLlama;
  const int64_t context = options.context == 0 ? model.positions : options.context;
  std::string out = head(model, options);
  if (!is_vit) {
    const std::string number = options.masks == 0 ? "=context" : fmt::format("{}", options.masks);
    const std::string masks = model.is_masked ? ", masks: " + number : "";
    out += fmt::format("# context: tokens of a sample{}{}\nvars: {{context: {}{}}}\n\n",
                       model.positions == 0 ? "" : fmt::format(", at most {}", model.positions),
                       model.is_masked ? "; masks: predicted positions of a sample" : "", context,
                       masks);
  }
  if (!options.dtype_policy.empty()) {
    out += fmt::format("dtype_policy: {}\n\n", options.dtype_policy);
  }
  out += data(model, options);
  out += is_decoder ? decoder_blocks(model) : "";
  out += "model:\n" + extras(model.extras) + "  layers:\n" + layers(model);
  if (!options.compile.empty()) {
    out += options.compile;
  } else if (model.has_head) {
    out += "\ncompile:\n  optimizer: {AdamW: {learning_rate: 2e-5, weight_decay: 0.01}}\n  loss: " +
           model.loss + "\n";
  }
  if (!options.initial_weights.empty()) {
    out += fmt::format("\nfit:\n  initial_weights: {}\n", yaml_text(options.initial_weights));
  }
  return out;
}

}  // namespace meshtrain
