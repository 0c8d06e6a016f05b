// config.json as transformers reads it. Every field whose value read_config.cc keeps is written, so
// that no default of another version counts.
#include "base/json.h"
#include "interop/huggingface/model.h"

namespace meshtrain {
namespace {

using FieldsJson = nlohmann::ordered_json;

void add_gpt2(const HuggingFaceModel& m, FieldsJson& json) {
  json["model_type"] = "gpt2";
  json["vocab_size"] = m.tokens;
  json["n_positions"] = m.positions;
  json["n_ctx"] = m.positions;
  json["n_embd"] = m.width;
  json["n_layer"] = m.depth;
  json["n_head"] = m.heads;
  json["n_inner"] = m.inner;
  json["activation_function"] = m.activation;
  json["layer_norm_epsilon"] = m.epsilon;
  json["embd_pdrop"] = m.embedding_dropout;
  json["resid_pdrop"] = m.dropout;
  json["attn_pdrop"] = m.attention_dropout;
  json["scale_attn_weights"] = true;
  json["tie_word_embeddings"] = m.is_tied;
}

// Both forms: of transformers 5, and of earlier ones.
void add_rope(const RopeSettings& rope, FieldsJson& json) {
  FieldsJson scaling = FieldsJson::object();
  if (rope.type == RopeSettings::Type::kLinear) {
    scaling = {{"rope_type", "linear"}, {"factor", rope.factor}};
  } else if (rope.type == RopeSettings::Type::kLlama3) {
    scaling = {{"rope_type", "llama3"},
               {"factor", rope.factor},
               {"low_freq_factor", rope.low_freq_factor},
               {"high_freq_factor", rope.high_freq_factor},
               {"original_max_position_embeddings", rope.original_positions}};
  }
  json["rope_theta"] = rope.theta;
  json["rope_scaling"] = scaling.empty() ? FieldsJson(nullptr) : scaling;
  if (scaling.empty()) {
    scaling["rope_type"] = "default";
  }
  scaling["rope_theta"] = rope.theta;
  json["rope_parameters"] = scaling;
}

void add_llama(const HuggingFaceModel& m, FieldsJson& json) {
  const bool is_mistral = m.sliding_window > 0;
  json["model_type"] = is_mistral ? "mistral" : "llama";
  json["vocab_size"] = m.tokens;
  json["max_position_embeddings"] = m.positions;
  json["hidden_size"] = m.width;
  json["num_hidden_layers"] = m.depth;
  json["num_attention_heads"] = m.heads;
  json["num_key_value_heads"] = m.key_heads;
  json["head_dim"] = m.head_size;
  json["intermediate_size"] = m.inner;
  json["hidden_act"] = m.activation;
  json["rms_norm_eps"] = m.epsilon;
  json["attention_dropout"] = m.attention_dropout;
  if (is_mistral) {
    json["sliding_window"] = m.sliding_window;
  } else {
    json["attention_bias"] = m.attention_bias;
    json["mlp_bias"] = m.feedforward_bias;
  }
  json["tie_word_embeddings"] = m.is_tied;
  add_rope(m.rope, json);
}

void add_encoder(const HuggingFaceModel& m, FieldsJson& json) {
  json["hidden_size"] = m.width;
  json["num_hidden_layers"] = m.depth;
  json["num_attention_heads"] = m.heads;
  json["intermediate_size"] = m.inner;
  json["hidden_act"] = m.activation;
  json["layer_norm_eps"] = m.epsilon;
  json["hidden_dropout_prob"] = m.dropout;
  json["attention_probs_dropout_prob"] = m.attention_dropout;
  if (m.has_head && !m.is_masked) {  // `num_labels` is a count of these
    FieldsJson labels = FieldsJson::object(), ids = FieldsJson::object();
    for (int64_t i = 0; i < m.classes; ++i) {
      const std::string label = m.extras.class_names.empty()
                                    ? "LABEL_" + std::to_string(i)
                                    : m.extras.class_names[static_cast<size_t>(i)];
      labels[std::to_string(i)] = label;
      ids[label] = i;
    }
    json["id2label"] = labels;
    json["label2id"] = ids;
  }
}

void add_bert(const HuggingFaceModel& m, FieldsJson& json) {
  json["model_type"] = "bert";
  add_encoder(m, json);
  json["vocab_size"] = m.tokens;
  json["max_position_embeddings"] = m.positions;
  json["type_vocab_size"] = m.segments;
  json["classifier_dropout"] = m.head_dropout;
  json["position_embedding_type"] = "absolute";
  if (m.is_masked) {
    json["tie_word_embeddings"] = true;
  }
}

void add_vit(const HuggingFaceModel& m, FieldsJson& json) {
  json["model_type"] = "vit";
  add_encoder(m, json);
  json["num_channels"] = m.channels;
  json["patch_size"] = m.patch;
  json["image_size"] =
      m.height == m.image_width ? FieldsJson(m.height) : FieldsJson{m.height, m.image_width};
  json["qkv_bias"] = true;
}

// Null where there is none: transformers' own default would be the id of another token.
void add_token_ids(const HuggingFaceModel& m, FieldsJson& json) {
  const bool is_decoder =
      m.family == HuggingFaceFamily::kGpt2 || m.family == HuggingFaceFamily::kLlama;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const auto found = m.extras.token_ids.find(key);
    if (found == m.extras.token_ids.end()) {
      if (is_decoder) {
        json[key] = nullptr;
      }
    } else if (found->second.size() == 1) {
      json[key] = found->second[0];
    } else {
      json[key] = found->second;
    }
  }
}

}  // namespace

std::string huggingface_config(const HuggingFaceModel& model, DType dtype) {
  FieldsJson json;
  json["architectures"] = {model.architecture};
  switch (model.family) {
    case HuggingFaceFamily::kGpt2:
      add_gpt2(model, json);
      break;
    case HuggingFaceFamily::kLlama:
      add_llama(model, json);
      break;
    case HuggingFaceFamily::kBert:
      add_bert(model, json);
      break;
    case HuggingFaceFamily::kVit:
      add_vit(model, json);
      break;
  }
  add_token_ids(model, json);
  json["torch_dtype"] = std::string(dtype_name(dtype));
  return json_text(json, 2) + "\n";
}

}  // namespace meshtrain
