#include "interop/keras/hub_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/schema.h"
#include "interop/huggingface/fields.h"
#include "interop/keras/import_values.h"

namespace meshtrain {
namespace {

using Family = HuggingFaceFamily;

enum class HubTask { kBackbone, kLanguage, kMaskedTokens, kClassifier };

struct HubClass {
  const char* name;
  Family family;
  HubTask task;
};

constexpr HubClass kHubClasses[] = {
    {"GPT2Backbone", Family::kGpt2, HubTask::kBackbone},
    {"GPT2CausalLM", Family::kGpt2, HubTask::kLanguage},
    {"LlamaBackbone", Family::kLlama, HubTask::kBackbone},
    {"LlamaCausalLM", Family::kLlama, HubTask::kLanguage},
    {"Llama3Backbone", Family::kLlama, HubTask::kBackbone},
    {"Llama3CausalLM", Family::kLlama, HubTask::kLanguage},
    {"MistralBackbone", Family::kLlama, HubTask::kBackbone},
    {"MistralCausalLM", Family::kLlama, HubTask::kLanguage},
    {"BertBackbone", Family::kBert, HubTask::kBackbone},
    {"BertTextClassifier", Family::kBert, HubTask::kClassifier},
    {"BertMaskedLM", Family::kBert, HubTask::kMaskedTokens},
    {"ViTBackbone", Family::kVit, HubTask::kBackbone},
    {"ViTImageClassifier", Family::kVit, HubTask::kClassifier},
};

const HubClass& hub_class(const std::string& name, const std::string& file) {
  std::vector<std::string> known;
  for (const HubClass& each : kHubClasses) {
    if (name == each.name) {
      return each;
    }
    known.push_back(each.name);
  }
  throw ConfigError("E405", {},
                    fmt::format("`{}`: Keras Hub's {} is not read, only {}", file, printable(name),
                                join(known, ", ")))
      .help(
          "if TransformerEncoder or TransformerDecoder build the model, save "
          "keras.Model(model.inputs, model.outputs)");
}

// A field that Hub always writes.
int64_t hub_size(ConfigFields& fields, const char* key,
                 int64_t most = std::numeric_limits<int32_t>::max()) {
  if (fields.find(key) == nullptr) {
    fields.problem(fmt::format("`{}` is missing", key));
  }
  return fields.size(key, 1, most);
}

void read_hub_texts(ConfigFields& f, HuggingFaceModel& m) {
  m.tokens = hub_size(f, "vocabulary_size");
  m.depth = hub_size(f, "num_layers", ConfigFields::kMostLayers);
  m.width = hub_size(f, "hidden_dim");
  m.inner = hub_size(f, "intermediate_dim");
}

// GPT-2 and BERT have one rate of dropout and one activation.
void read_hub_blocks(ConfigFields& f, HuggingFaceModel& m) {
  read_hub_texts(f, m);
  m.heads = hub_size(f, "num_heads");
  m.positions = hub_size(f, "max_sequence_length");
  m.dropout = m.embedding_dropout = m.attention_dropout = f.rate("dropout", 0);
  m.activation = "gelu_new";
}

// Mistral stretches positions by `rope_scaling_factor`. Hub's Llama takes such a factor, and has no
// use for it (0.32).
RopeSettings read_hub_rope(ConfigFields& f, std::vector<std::string>& dropped) {
  RopeSettings rope;
  rope.theta = f.number("rope_max_wavelength", 10000);
  rope.factor = f.number("rope_scaling_factor", 1);
  rope.type = rope.factor == 1 ? RopeSettings::Type::kDefault : RopeSettings::Type::kLinear;
  if (const double unused = f.number("rope_position_scaling_factor", 1); unused != 1) {
    dropped.push_back(
        fmt::format("`rope_position_scaling_factor` {}, which Hub does not use", unused));
  }
  if (f.find("rope_frequency_adjustment_factor") != nullptr) {
    rope.type = RopeSettings::Type::kLlama3;
    rope.factor = f.number("rope_frequency_adjustment_factor", 8);
    rope.original_positions = hub_size(f, "rope_pretraining_sequence_length");
  }
  rope.low_freq_factor = f.number("rope_low_freq_factor", 1);
  rope.high_freq_factor = f.number("rope_high_freq_factor", 4);
  f.ignore("rope_pretraining_sequence_length");
  return rope;
}

class HubConfigReader {
 public:
  HubConfigReader(const Json& json, const ImportOptions& options)
      : options_(options), json_(json) {}

  HubConfig read() {
    const KerasJson reader(options_.file);
    const HubClass& own =
        hub_class(reader.need_text(json_, "class_name", "the model"), options_.file);
    const Json& config = reader.need(json_, "config", own.name);
    const bool is_task = own.task != HubTask::kBackbone;
    const Json& backbone = is_task ? reader.need(config, "backbone", own.name) : json_;
    read_backbone(
        hub_class(reader.need_text(backbone, "class_name", "the backbone"), options_.file), own,
        reader.need(backbone, "config", "the backbone"));
    if (is_task) {
      read_task(own, config);
    }
    throw_problems();
    return std::move(out_);
  }

 private:
  void read_backbone(const HubClass& backbone, const HubClass& own, const Json& config) {
    out_.model.architecture = own.name;
    if (backbone.family != own.family || backbone.task != HubTask::kBackbone) {
      problems_.push_back(fmt::format("`backbone` of a {} is a {}", own.name, backbone.name));
      return;
    }
    out_.model.family = own.family;
    ConfigFields fields = fields_of(config, own);
    if (!fields.flag("trainable", true)) {
      out_.dropped.push_back("`trainable: false` of the backbone");
    }
    fields.ignore("dtype");
    read_policy(config);
    switch (own.family) {
      case Family::kGpt2:
        read_hub_blocks(fields, out_.model);
        out_.model.is_tied = true;
        break;
      case Family::kLlama:
        read_llama(fields);
        break;
      case Family::kBert:
        read_hub_blocks(fields, out_.model);
        out_.model.segments = hub_size(fields, "num_segments");
        out_.model.epsilon = 1e-12;
        out_.model.has_pooler = true;
        out_.model.has_named_outputs = true;
        break;
      case Family::kVit:
        read_vit(fields);
        break;
    }
    out_.model.has_padding_mask = own.family == Family::kGpt2 || own.family == Family::kLlama;
    if (out_.model.head_size == 0) {
      out_.model.key_heads = out_.model.heads;
      out_.model.head_size = std::max<int64_t>(out_.model.width / out_.model.heads, 1);
    }
    note_unread(fields);
  }

  void read_llama(ConfigFields& f) {
    HuggingFaceModel& m = out_.model;
    read_hub_texts(f, m);
    m.heads = hub_size(f, "num_query_heads");
    m.key_heads = hub_size(f, "num_key_value_heads");
    m.head_size = f.size("head_dim", std::max<int64_t>(m.width / m.heads, 1));
    m.activation = "silu";
    m.epsilon = f.number("layer_norm_epsilon", 1e-6);
    m.attention_bias = m.feedforward_bias = false;
    m.rope = read_hub_rope(f, out_.dropped);
    m.sliding_window = f.size("sliding_window", 0);
    m.is_tied = f.flag("tie_word_embeddings", false) || has_one_table();
    if (const double rate = f.rate("dropout", 0); rate > 0) {
      out_.dropped.push_back(fmt::format("`dropout` {} of what attention computes", rate));
    }
    if (m.heads % m.key_heads != 0) {
      f.problem(fmt::format("`num_query_heads` {} is no multiple of `num_key_value_heads` {}",
                            m.heads, m.key_heads));
    }
  }

  // Hub does not save whether logits are of the table of tokens.
  bool has_one_table() const {
    return options_.weights != nullptr &&
           std::none_of(options_.weights->datasets.begin(), options_.weights->datasets.end(),
                        [](const NamedTensor& each) {
                          return ends_with(each.name, "reversible_embedding/vars/1");
                        });
  }

  void read_vit(ConfigFields& f) {
    HuggingFaceModel& m = out_.model;
    m.depth = hub_size(f, "num_layers", ConfigFields::kMostLayers);
    m.heads = hub_size(f, "num_heads");
    m.width = hub_size(f, "hidden_dim");
    m.inner = hub_size(f, "mlp_dim");
    m.activation = "gelu";
    m.epsilon = f.number("layer_norm_epsilon", 1e-6);
    m.dropout = m.embedding_dropout = f.rate("dropout_rate", 0);
    m.attention_dropout = f.rate("attention_dropout", 0);
    if (m.attention_dropout != m.dropout) {
      out_.dropped.push_back(fmt::format("`attention_dropout` {}: {} is the rate of all",
                                         m.attention_dropout, m.dropout));
    }
    if (m.dropout > 0) {
      out_.dropped.push_back(
          fmt::format("`dropout_rate` {} between the two products of the "
                      "feed-forward network",
                      m.dropout));
    }
    for (const char* key : {"use_mha_bias", "use_mlp_bias", "use_class_token", "use_patch_bias"}) {
      f.only(key, true);
    }
    f.only("data_format", "channels_last");
    const std::vector<int64_t> image = sizes(f, "image_shape", 3),
                               patch = sizes(f, "patch_size", 2);
    m.height = image[0];
    m.image_width = image[1];
    m.channels = image[2];
    m.patch = patch[0];
    if (patch[0] != patch[1]) {
      f.wrong("patch_size", *f.find("patch_size"), "a square");
    }
    if (m.height % m.patch != 0 || m.image_width % m.patch != 0) {
      f.problem(fmt::format("`patch_size` {} does not divide `image_shape`", m.patch));
    }
  }

  static std::vector<int64_t> sizes(ConfigFields& f, const char* key, size_t count) {
    const Json* value = f.find(key);
    std::vector<int64_t> out;
    for (const Json& size : value == nullptr || !value->is_array() ? Json::array() : *value) {
      if (size.is_number_integer() && size.get<int64_t>() > 0 &&
          size.get<int64_t>() <= std::numeric_limits<int32_t>::max()) {
        out.push_back(size.get<int64_t>());
      }
    }
    if (out.size() != count || value->size() != count) {
      f.wrong(key, value == nullptr ? Json() : *value, fmt::format("a list of {} sizes", count));
      out.assign(count, 1);
    }
    return out;
  }

  void read_task(const HubClass& own, const Json& config) {
    ConfigFields f = fields_of(config, own);
    for (const char* key : {"backbone", "name", "preprocessor"}) {
      f.ignore(key);
    }
    out_.model.has_head = true;
    if (own.task == HubTask::kMaskedTokens) {
      out_.model.is_masked = true;
      out_.model.has_pooler = false;
      out_.model.head_activation = "gelu";
      out_.model.head_epsilon = 1e-5;
    } else if (own.task == HubTask::kClassifier) {
      read_classifier(f);
    }
    note_unread(f);
  }

  void read_classifier(ConfigFields& f) {
    out_.model.classes = hub_size(f, "num_classes");
    out_.model.head_dropout = f.rate("dropout", 0);
    const std::string activation = f.word("activation", "linear");
    out_.model.head_activation = activation == "linear" ? "" : activation;
    static const std::set<std::string> kActivations = {"linear", "softmax", "sigmoid"};
    if (!kActivations.contains(activation)) {
      f.wrong("activation", activation, "linear, softmax or sigmoid");
    }
    if (activation == "softmax") {
      out_.model.loss = "sparse_categorical_crossentropy";
    } else if (activation == "sigmoid") {
      out_.model.loss = "binary_crossentropy";
    }
    if (out_.model.family != Family::kVit) {
      return;
    }
    const std::string pooling = f.word("pooling", "token");
    out_.model.has_mean_pooling = pooling == "gap";
    if (pooling != "gap" && pooling != "token") {
      f.wrong("pooling", pooling, "token or gap");
    }
    if (f.find("intermediate_dim") != nullptr) {
      out_.model.has_pooler = true;
      f.only("intermediate_dim", out_.model.width);
    }
  }

  ConfigFields fields_of(const Json& config, const HubClass& own) {
    if (!config.is_object()) {
      KerasJson(options_.file).malformed(fmt::format("`config` of a {} is no object", own.name));
    }
    return ConfigFields(config, "", problems_);
  }

  void note_unread(ConfigFields& fields) {
    fields.ignore("name");
    for (const std::string& key : fields.unread()) {
      fields.problem(fmt::format("`{}` is not known here", printable(key)));
    }
  }

  void read_policy(const Json& config) {
    const Json dtype = config.value("dtype", Json());
    if (dtype.is_null()) {
      return;
    }
    const std::string policy = policy_name(dtype);
    const Spec& spec = *root_section().find("dtype_policy");
    if (std::find(spec.allowed.begin(), spec.allowed.end(), policy) == spec.allowed.end()) {
      problems_.push_back(fmt::format("the dtype policy `{}` is not in meshtrain",
                                      printable(policy.empty() ? json_text(dtype) : policy)));
    }
    out_.dtype_policy = policy == "float32" ? "" : policy;
  }

  void throw_problems() const {
    Diagnostics found;
    for (const std::string& problem : problems_) {
      found.error("E416", {},
                  fmt::format("`{}`: {}, {}", options_.file, out_.model.architecture, problem));
    }
    found.throw_if_errors();
  }

  const ImportOptions& options_;
  const Json& json_;
  HubConfig out_;
  std::vector<std::string> problems_;
};

}  // namespace

HubConfig read_hub_config(const Json& json, const ImportOptions& options) {
  return HubConfigReader(json, options).read();
}

}  // namespace meshtrain
