// config.json of transformers' GPT2Config, LlamaConfig, MistralConfig, BertConfig and ViTConfig. A
// field that is not written has the default of its class, because transformers leaves defaults out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/diagnostic.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "interop/huggingface/fields.h"
#include "interop/huggingface/model.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;
using Fields = ConfigFields;
constexpr int64_t kMostLayers = ConfigFields::kMostLayers;

struct Architecture {
  const char* name;
  std::string_view model_type;
  HuggingFaceFamily family;
  bool has_head;
  const char* dropped_head;  // what of it is not taken over; null: nothing
};

constexpr const char* kMaskedBert = "BertForMaskedLM";
constexpr const char* kHeadDropped = "the head (`cls`)";
constexpr std::string_view kMistral = "mistral";

const std::vector<Architecture>& architectures() {
  using F = HuggingFaceFamily;
  static const std::vector<Architecture> kAll = {
      {"GPT2LMHeadModel", "gpt2", F::kGpt2, true, nullptr},
      {"GPT2Model", "gpt2", F::kGpt2, false, nullptr},
      {"LlamaForCausalLM", "llama", F::kLlama, true, nullptr},
      {"LlamaModel", "llama", F::kLlama, false, nullptr},
      {"MistralForCausalLM", kMistral, F::kLlama, true, nullptr},
      {"MistralModel", kMistral, F::kLlama, false, nullptr},
      {"BertForSequenceClassification", "bert", F::kBert, true, nullptr},
      {"BertModel", "bert", F::kBert, false, nullptr},
      {"BertForMaskedLM", "bert", F::kBert, true, nullptr},
      {"BertForPreTraining", "bert", F::kBert, false, kHeadDropped},
      {"ViTForImageClassification", "vit", F::kVit, true, nullptr},
      {"ViTModel", "vit", F::kVit, false, nullptr},
  };
  return kAll;
}

// transformers 5 writes `rope_parameters`, earlier ones `rope_theta` and `rope_scaling`.
RopeSettings read_rope(Fields& fields) {
  RopeSettings rope;
  rope.theta = fields.number("rope_theta", 10000);
  const Json* scaling = fields.find("rope_parameters");
  const char* key = "rope_parameters";
  if (scaling == nullptr) {
    key = "rope_scaling";
    scaling = fields.find(key);
  }
  if (scaling == nullptr) {
    return rope;
  }
  if (!scaling->is_object()) {
    fields.wrong(key, *scaling, "an object");
    return rope;
  }
  Fields inner(*scaling, std::string(key) + ".", fields.problems());
  rope.theta = inner.number("rope_theta", rope.theta);
  inner.only("partial_rotary_factor", 1.0);
  const std::string type = inner.word("rope_type", inner.word("type", "default").c_str());
  if (type == "linear") {
    rope.type = RopeSettings::Type::kLinear;
    rope.factor = inner.number("factor", 1, 1);
  } else if (type == "llama3") {
    rope.type = RopeSettings::Type::kLlama3;
    rope.factor = inner.number("factor", 8, 1);
    rope.low_freq_factor = inner.number("low_freq_factor", 1);
    rope.high_freq_factor = inner.number("high_freq_factor", 4);
    rope.original_positions = inner.size("original_max_position_embeddings", 8192);
    if (rope.low_freq_factor >= rope.high_freq_factor) {
      inner.problem(fmt::format("`{}.low_freq_factor` is not below `high_freq_factor`", key));
    }
  } else if (type != "default") {
    inner.wrong("rope_type", Json(type), "one of default, linear, llama3");
  }
  return rope;
}

void read_gpt2(Fields& f, HuggingFaceModel& m) {
  m.tokens = f.size("vocab_size", 50257);
  m.positions = f.size("n_positions", 1024);
  m.width = f.size("n_embd", 768);
  m.depth = f.size("n_layer", 12, kMostLayers);
  m.heads = f.size("n_head", 12);
  m.inner = f.size("n_inner", 4 * m.width);
  m.activation = f.activation("activation_function", "gelu_new");
  m.epsilon = f.number("layer_norm_epsilon", 1e-5);
  m.embedding_dropout = f.rate("embd_pdrop", 0.1);
  m.dropout = f.rate("resid_pdrop", 0.1);
  m.attention_dropout = f.rate("attn_pdrop", 0.1);
  m.is_tied = f.flag("tie_word_embeddings", true);
  f.only("scale_attn_weights", true);
  f.only("scale_attn_by_inverse_layer_idx", false);
  f.only("add_cross_attention", false);
}

// Mistral is a Llama with other defaults, and attention that sees `sliding_window` steps; null:
// all.
void read_llama(Fields& f, bool is_mistral, HuggingFaceModel& m) {
  m.tokens = f.size("vocab_size", 32000);
  m.positions = f.size("max_position_embeddings", is_mistral ? 131072 : 2048);
  m.width = f.size("hidden_size", 4096);
  m.depth = f.size("num_hidden_layers", 32, kMostLayers);
  m.heads = f.size("num_attention_heads", 32);
  m.key_heads = f.has("num_key_value_heads") || !is_mistral ? f.size("num_key_value_heads", m.heads)
                                                            : std::min<int64_t>(m.heads, 8);
  m.head_size = f.size("head_dim", std::max<int64_t>(m.width / m.heads, 1));
  m.inner = f.size("intermediate_size", is_mistral ? 14336 : 11008);
  m.activation = f.activation("hidden_act", "silu");
  m.epsilon = f.number("rms_norm_eps", 1e-6);
  m.attention_dropout = f.rate("attention_dropout", 0);
  m.is_tied = f.flag("tie_word_embeddings", false);
  if (is_mistral) {
    m.sliding_window = f.has("sliding_window") ? f.size("sliding_window", 0) : 4096;
    m.attention_bias = m.feedforward_bias = false;
  } else {
    m.attention_bias = f.flag("attention_bias", false);
    m.feedforward_bias = f.flag("mlp_bias", false);
  }
  m.rope = read_rope(f);
  if (m.heads % m.key_heads != 0) {
    f.problem(fmt::format("`num_attention_heads` {} is no multiple of `num_key_value_heads` {}",
                          m.heads, m.key_heads));
  }
}

// What BertConfig and ViTConfig share.
void read_encoder(Fields& f, HuggingFaceModel& m, double dropout) {
  m.width = f.size("hidden_size", 768);
  m.depth = f.size("num_hidden_layers", 12, kMostLayers);
  m.heads = f.size("num_attention_heads", 12);
  m.inner = f.size("intermediate_size", 3072);
  m.activation = f.activation("hidden_act", "gelu");
  m.epsilon = f.number("layer_norm_eps", 1e-12);
  m.dropout = f.rate("hidden_dropout_prob", dropout);
  m.attention_dropout = f.rate("attention_probs_dropout_prob", dropout);
  m.embedding_dropout = m.dropout;
  m.classes = f.size("num_labels", 2);
  if (const Json* labels = f.find("id2label"); labels != nullptr && labels->is_object()) {
    m.classes = static_cast<int64_t>(labels->size());
  }
}

void read_bert(Fields& f, HuggingFaceModel& m) {
  read_encoder(f, m, 0.1);
  m.tokens = f.size("vocab_size", 30522);
  m.positions = f.size("max_position_embeddings", 512);
  m.segments = f.size("type_vocab_size", 2);
  m.head_dropout = f.rate("classifier_dropout", m.dropout);
  f.only("position_embedding_type", "absolute");
  f.only("is_decoder", false);
  if (m.is_masked) {
    if (!f.flag("tie_word_embeddings", true)) {
      f.problem(fmt::format("`tie_word_embeddings` is false: {}", kUntiedMasked));
    }
    m.is_tied = true;
    m.loss =
        "{SparseCategoricalCrossentropy: {from_logits: true, reduction: mean_with_sample_weight}}";
  }
  f.only("add_cross_attention", false);
}

void read_vit(Fields& f, HuggingFaceModel& m) {
  read_encoder(f, m, 0);
  m.channels = f.size("num_channels", 3);
  m.patch = f.size("patch_size", 16);
  f.only("qkv_bias", true);
  f.only("pooler_act", "tanh");
  f.only("pooler_output_size", m.width);
  const Json* size = f.find("image_size");
  if (size != nullptr && size->is_array() && size->size() == 2 && (*size)[0].is_number_integer() &&
      (*size)[1].is_number_integer()) {
    m.height = (*size)[0].get<int64_t>();
    m.image_width = (*size)[1].get<int64_t>();
  } else {
    m.height = m.image_width = f.size("image_size", 224);
  }
  if (m.height < m.patch || m.image_width < m.patch || m.height % m.patch != 0 ||
      m.image_width % m.patch != 0) {
    f.problem(fmt::format("`patch_size` {} does not divide `image_size` {} x {}", m.patch, m.height,
                          m.image_width));
  }
}

// The ids of a field that the model has; others are named in `dropped`.
std::vector<int64_t> read_ids(const char* key, const Json& value, int64_t tokens,
                              std::vector<std::string>& dropped) {
  std::vector<int64_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < tokens) {
      ids.push_back(id.get<int64_t>());
    } else {
      dropped.push_back(fmt::format(
          "`{}` {}: the model has the ids 0 to {}", key,
          printable(id.dump(-1, ' ', false, Json::error_handler_t::replace)), tokens - 1));
    }
  }
  return ids;
}

// A field that is not written has the default of transformers' class, where the model has this id.
void read_token_ids(const Json& json, HuggingFaceModel& m, std::vector<std::string>& dropped) {
  const bool is_gpt2 = m.family == HuggingFaceFamily::kGpt2;
  const bool is_decoder = is_gpt2 || m.family == HuggingFaceFamily::kLlama;
  const std::pair<const char*, int64_t> keys[] = {{"bos_token_id", is_gpt2 ? 50256 : 1},
                                                  {"eos_token_id", is_gpt2 ? 50256 : 2},
                                                  {"pad_token_id", -1}};
  for (const auto& [key, otherwise] : keys) {
    const auto found = json.find(key);
    std::vector<int64_t> ids;
    if (found != json.end() && !found->is_null()) {
      ids = read_ids(key, *found, m.tokens, dropped);
    } else if (found == json.end() && is_decoder && otherwise >= 0 && otherwise < m.tokens) {
      ids = {otherwise};
    }
    const bool is_bert_default =
        !is_decoder && std::string(key) == "pad_token_id" && ids == std::vector<int64_t>{0};
    if (!ids.empty() && !is_bert_default) {
      m.extras.token_ids[key] = ids;
    }
  }
}

// transformers chooses the loss of a classifier by its `problem_type`, or else by its one label.
void read_problem_type(const Json& json, HuggingFaceModel& m, std::vector<std::string>& dropped) {
  const auto found = json.find("problem_type");
  const std::string type =
      found != json.end() && found->is_string() ? found->get<std::string>() : "";
  if (type == "multi_label_classification") {
    m.loss = "{BinaryCrossentropy: {from_logits: true}}";
  } else if (type == "regression" || (type.empty() && m.classes == 1)) {
    m.loss = "MeanSquaredError";
  }
  if (!type.empty() && type != "single_label_classification") {
    dropped.push_back(fmt::format("`problem_type: {}`: the loss says it here, an export does not",
                                  printable(type)));
  }
}

// The names of `id2label`, {"0": "cat", "1": "dog"}; none where they are transformers' defaults.
void read_class_names(const Json& json, HuggingFaceModel& m, std::vector<std::string>& dropped) {
  const auto labels = json.find("id2label");
  if (!m.has_head || m.is_masked || labels == json.end() || !labels->is_object()) {
    return;
  }
  bool has_names = false;
  for (int64_t i = 0; i < m.classes; ++i) {
    const auto label = labels->find(std::to_string(i));
    if (label == labels->end() || !label->is_string()) {
      dropped.push_back(fmt::format("`id2label`: class {} has no text", i));
      m.extras.class_names.clear();
      return;
    }
    m.extras.class_names.push_back(label->get<std::string>());
    has_names = has_names || m.extras.class_names.back() != fmt::format("LABEL_{}", i);
  }
  if (!has_names) {
    m.extras.class_names.clear();
  }
}

// The architecture `name`, else that of `architectures`, else the usual one of `model_type`.
const Architecture& find_architecture(const Json& json, const std::string& path, std::string name) {
  const auto given = json.find("architectures");
  const bool is_given =
      given != json.end() && given->is_array() && !given->empty() && (*given)[0].is_string();
  if (name.empty() && is_given) {
    name = (*given)[0].get<std::string>();
  } else if (name.empty()) {
    const auto type = json.find("model_type");
    const std::string word =
        type != json.end() && type->is_string() ? type->get<std::string>() : std::string();
    const std::pair<const char*, const char*> usual[] = {{"gpt2", "GPT2LMHeadModel"},
                                                         {"llama", "LlamaForCausalLM"},
                                                         {"mistral", "MistralForCausalLM"},
                                                         {"bert", "BertModel"},
                                                         {"vit", "ViTModel"}};
    for (const auto& [given_type, architecture] : usual) {
      name = word == given_type ? architecture : name;
    }
    name = name.empty() ? word : name;
  }
  for (const Architecture& known : architectures()) {
    if (name == known.name) {
      return known;
    }
  }
  throw ConfigError("E416", {},
                    name.empty()
                        ? fmt::format("`{}` names no architecture", path)
                        : fmt::format("`{}` is a {}, which is not read", path, printable(name)))
      .help(fmt::format("the architectures that are read: {}", known_architectures()));
}

[[noreturn]] void refuse_text(const Json& json, const std::string& text, const std::string& path) {
  if (!json.is_discarded()) {
    throw ConfigError(
        "E405", {},
        fmt::format("`{}` is a JSON {}, not an object of fields", path, json.type_name()))
        .help("give the folder that save_pretrained() wrote");
  }
  for (const char* number : {"NaN", "Infinity"}) {
    if (text.find(number) != std::string::npos) {
      throw ConfigError("E405", {},
                        fmt::format("`{}` has `{}`, which is no number of JSON", path, number))
          .help("write the number that it should be, or null");
    }
  }
  throw ConfigError("E405", {}, fmt::format("`{}` is no JSON: truncated?", path));
}

}  // namespace

std::string known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& known : architectures()) {
    names.push_back(known.name);
  }
  return join(names, ", ");
}

const std::vector<std::pair<std::string, std::string>>& activation_names() {
  static const std::vector<std::pair<std::string, std::string>> kNames = {
      {"gelu", "gelu"},
      {"gelu_new", "{gelu: {approximate: true}}"},
      {"gelu_pytorch_tanh", "{gelu: {approximate: true}}"},
      {"gelu_fast", "{gelu: {approximate: true}}"},
      {"relu", "relu"},
      {"silu", "silu"},
      {"swish", "silu"},
      {"tanh", "tanh"}};
  return kNames;
}

std::string activation_text(const std::string& name) {
  for (const auto& [theirs, ours] : activation_names()) {
    if (theirs == name) {
      return ours;
    }
  }
  return "";
}

HuggingFaceModel read_huggingface_config(const std::string& text, const std::string& path,
                                         std::vector<std::string>& dropped,
                                         const std::string& read_as) {
  const Json json = parse_json(text);
  if (!json.is_object()) {
    refuse_text(json, text, path);
  }
  const Architecture& architecture = find_architecture(json, path, read_as);
  HuggingFaceModel model;
  model.family = architecture.family;
  model.architecture = architecture.name;
  model.has_head = architecture.has_head;
  model.is_masked = model.architecture == kMaskedBert;
  model.drops_head = !read_as.empty() && !model.has_head;
  std::vector<std::string> problems;
  Fields fields(json, "", problems);
  if (const std::string type = fields.word("model_type", "");
      !type.empty() && type != architecture.model_type) {
    fields.wrong("model_type", type,
                 fmt::format("`{}`, that of a {}", architecture.model_type, architecture.name));
  }
  switch (model.family) {
    case HuggingFaceFamily::kGpt2:
      read_gpt2(fields, model);
      break;
    case HuggingFaceFamily::kLlama:
      read_llama(fields, architecture.model_type == kMistral, model);
      break;
    case HuggingFaceFamily::kBert:
      read_bert(fields, model);
      break;
    case HuggingFaceFamily::kVit:
      read_vit(fields, model);
      break;
  }
  if (model.head_size == 0) {
    model.key_heads = model.heads;
    model.head_size = model.width / model.heads;
    if (model.width % model.heads != 0) {
      fields.problem(
          fmt::format("{} heads do not divide the width of {}", model.heads, model.width));
    }
  }
  if (!problems.empty()) {
    Diagnostics diagnostics;
    for (const std::string& problem : problems) {
      diagnostics.error("E416", {}, fmt::format("{}: {}", path, problem));
    }
    throw ConfigError(diagnostics);
  }
  const bool is_encoder =
      model.family == HuggingFaceFamily::kBert || model.family == HuggingFaceFamily::kVit;
  if (model.family != HuggingFaceFamily::kVit) {
    read_token_ids(json, model, dropped);
  }
  if (is_encoder) {
    read_class_names(json, model, dropped);
    if (model.has_head && !model.is_masked) {
      read_problem_type(json, model, dropped);
    }
  }
  if (is_encoder && model.attention_dropout != model.dropout) {
    dropped.push_back(fmt::format("attention_probs_dropout_prob {}: {} is the rate of all",
                                  model.attention_dropout, model.dropout));
  }
  if (architecture.dropped_head != nullptr) {
    dropped.push_back(fmt::format("{} of {}", architecture.dropped_head, architecture.name));
    model.architecture = "BertModel";
    model.drops_head = true;
  }
  return model;
}

}  // namespace meshtrain
