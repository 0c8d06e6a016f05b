#include "interop/keras/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <set>

#include "base/printable.h"
#include "base/text.h"
#include "config/schema.h"
#include "data/tokenizer/tokenizer.h"
#include "interop/huggingface/config_text.h"
#include "interop/huggingface/fields.h"
#include "interop/keras/import_compile.h"
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

// `sequence_length` of Hub's preprocessors of texts.
constexpr int64_t kHubSteps = 1024;

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
          "where it is built from inputs, outputs and layers of Keras, TransformerEncoder or "
          "TransformerDecoder, save keras.Model(model.inputs, model.outputs)");
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
  f.find("rope_pretraining_sequence_length");
  return rope;
}

class HubImporter {
 public:
  HubImporter(const Json& json, const ImportOptions& options) : options_(options), json_(json) {}

  ImportedModel run() {
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
    find_tokens();
    ImportedModel out;
    out.hub_class = own.name;
    out.yaml = huggingface_yaml(model_, text_options(config));
    out.dropped = std::move(dropped_);
    out.takes_tokenizer = takes_tokenizer();
    return out;
  }

 private:
  // Texts of decoders, as of Hugging Face's: others take a tokenizer where their data need it.
  bool takes_tokenizer() const { return model_.has_padding_mask && !options_.tokenizer.empty(); }

  // Hub has the tokens around texts in the code of its tokenizers. `generate` ends at those behind.
  void find_tokens() {
    if (!takes_tokenizer()) {
      return;
    }
    const Tokenizer tokenizer(options_.tokenizer, options_.file);
    for (const char* token : {"<|endoftext|>", "<|begin_of_text|>", "<s>"}) {
      start_ = start_.empty() && tokenizer.find(token) ? token : start_;
    }
    for (const char* token : {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>"}) {
      const auto id = tokenizer.find(token);
      if (id && *id < model_.tokens) {
        end_ = end_.empty() ? token : end_;
        model_.extras.token_ids["eos_token_id"].push_back(*id);
      }
    }
  }

  void read_backbone(const HubClass& backbone, const HubClass& own, const Json& config) {
    model_.architecture = own.name;
    if (backbone.family != own.family || backbone.task != HubTask::kBackbone) {
      problems_.push_back(fmt::format("`backbone` of a {} is a {}", own.name, backbone.name));
      return;
    }
    model_.family = own.family;
    ConfigFields fields = fields_of(config, own);
    if (!fields.flag("trainable", true)) {
      dropped_.push_back("`trainable: false` of the backbone");
    }
    fields.find("dtype");
    read_policy(config);
    switch (own.family) {
      case Family::kGpt2:
        read_hub_blocks(fields, model_);
        model_.is_tied = true;
        break;
      case Family::kLlama:
        read_llama(fields);
        break;
      case Family::kBert:
        read_hub_blocks(fields, model_);
        model_.segments = hub_size(fields, "num_segments");
        model_.epsilon = 1e-12;
        model_.has_pooler = true;
        model_.has_named_outputs = true;
        break;
      case Family::kVit:
        read_vit(fields);
        break;
    }
    model_.has_padding_mask = own.family == Family::kGpt2 || own.family == Family::kLlama;
    if (model_.head_size == 0) {
      model_.key_heads = model_.heads;
      model_.head_size = std::max<int64_t>(model_.width / model_.heads, 1);
    }
    note_unread(fields);
  }

  void read_llama(ConfigFields& f) {
    HuggingFaceModel& m = model_;
    read_hub_texts(f, m);
    m.heads = hub_size(f, "num_query_heads");
    m.key_heads = hub_size(f, "num_key_value_heads");
    m.head_size = f.size("head_dim", std::max<int64_t>(m.width / m.heads, 1));
    m.activation = "silu";
    m.epsilon = f.number("layer_norm_epsilon", 1e-6);
    m.attention_bias = m.feedforward_bias = false;
    m.rope = read_hub_rope(f, dropped_);
    m.sliding_window = f.size("sliding_window", 0);
    m.is_tied = f.flag("tie_word_embeddings", false) || has_one_table();
    if (const double rate = f.rate("dropout", 0); rate > 0) {
      dropped_.push_back(fmt::format("`dropout` {} of what attention computes", rate));
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
    HuggingFaceModel& m = model_;
    m.depth = hub_size(f, "num_layers", ConfigFields::kMostLayers);
    m.heads = hub_size(f, "num_heads");
    m.width = hub_size(f, "hidden_dim");
    m.inner = hub_size(f, "mlp_dim");
    m.activation = "gelu";
    m.epsilon = f.number("layer_norm_epsilon", 1e-6);
    m.dropout = m.embedding_dropout = f.rate("dropout_rate", 0);
    m.attention_dropout = f.rate("attention_dropout", 0);
    if (m.attention_dropout != m.dropout) {
      dropped_.push_back(fmt::format("`attention_dropout` {}: {} is the rate of all",
                                     m.attention_dropout, m.dropout));
    }
    if (m.dropout > 0) {
      dropped_.push_back(
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
      f.find(key);
    }
    model_.has_head = true;
    if (own.task == HubTask::kMaskedTokens) {
      model_.is_masked = true;
      model_.has_pooler = false;
      model_.head_activation = "gelu";
      model_.head_epsilon = 1e-5;
    } else if (own.task == HubTask::kClassifier) {
      read_classifier(f);
    }
    note_unread(f);
  }

  void read_classifier(ConfigFields& f) {
    model_.classes = hub_size(f, "num_classes");
    model_.head_dropout = f.rate("dropout", 0);
    const std::string activation = f.word("activation", "linear");
    model_.head_activation = activation == "linear" ? "" : activation;
    static const std::set<std::string> kActivations = {"linear", "softmax", "sigmoid"};
    if (!kActivations.contains(activation)) {
      f.wrong("activation", activation, "linear, softmax or sigmoid");
    }
    if (activation == "softmax") {
      model_.loss = "sparse_categorical_crossentropy";
    } else if (activation == "sigmoid") {
      model_.loss = "binary_crossentropy";
    }
    if (model_.family != Family::kVit) {
      return;
    }
    const std::string pooling = f.word("pooling", "token");
    model_.has_mean_pooling = pooling == "gap";
    if (pooling != "gap" && pooling != "token") {
      f.wrong("pooling", pooling, "token or gap");
    }
    if (f.find("intermediate_dim") != nullptr) {
      model_.has_pooler = true;
      f.only("intermediate_dim", model_.width);
    }
  }

  ConfigFields fields_of(const Json& config, const HubClass& own) {
    if (!config.is_object()) {
      KerasJson(options_.file).malformed(fmt::format("`config` of a {} is no object", own.name));
    }
    return ConfigFields(config, "", problems_);
  }

  void note_unread(ConfigFields& fields) {
    fields.find("name");
    for (const std::string& key : fields.unread()) {
      fields.problem(fmt::format("`{}` is not known here", printable(key)));
    }
  }

  void read_policy(const Json& config) {
    policy_ = policy_name(config.value("dtype", Json("float32")));
    const Spec& spec = *root_section().find("dtype_policy");
    if (std::find(spec.allowed.begin(), spec.allowed.end(), policy_) == spec.allowed.end()) {
      problems_.push_back(
          fmt::format("the dtype policy `{}` is not in meshtrain", printable(policy_)));
    }
    policy_ = policy_ == "float32" ? "" : policy_;
  }

  void throw_problems() const {
    Diagnostics found;
    for (const std::string& problem : problems_) {
      found.error("E416", {},
                  fmt::format("`{}`: {}, {}", options_.file, model_.architecture, problem));
    }
    found.throw_if_errors();
  }

  ConfigTextOptions text_options(const Json& config) {
    ConfigTextOptions out;
    const std::filesystem::path file = options_.file;
    out.name = (file.extension() == ".keras" ? file.stem() : file.filename()).string();
    out.initial_weights = options_.initial_weights;
    out.dtype_policy = policy_;
    out.context = context(config);
    out.masks = masks_;
    out.has_tokenizer = takes_tokenizer();
    out.start_token = start_;
    out.end_token = end_;
    KerasModel compiled;
    compiled.compile = json_.value("compile_config", Json());
    compiled.outputs = {{"output", 0}};
    out.compile = imported_compile(compiled, {"output"}, dropped_);
    out.dropped = dropped_;
    return out;
  }

  // Steps of a sample: those of the options, of the preprocessor, or as many as there are.
  int64_t context(const Json& config) {
    const Json* preprocessor = find_member(config, "preprocessor");
    const Json* settings = preprocessor != nullptr && preprocessor->is_object()
                               ? find_member(*preprocessor, "config")
                               : nullptr;
    const Json steps = settings != nullptr && settings->is_object()
                           ? settings->value("sequence_length", Json())
                           : Json();
    if (settings != nullptr && !takes_tokenizer()) {
      dropped_.push_back("the preprocessor: data come as the model's inputs");
    }
    const int64_t most =
        model_.positions == 0 ? std::numeric_limits<int32_t>::max() : model_.positions;
    int64_t out = steps.is_number_integer() && steps.get<int64_t>() > 0 ? steps.get<int64_t>()
                  : model_.positions > 0                                ? model_.positions
                                                                        : kHubSteps;
    out = std::min(out, most);
    int64_t given = 0;
    for (const InputShape& shape : options_.shapes) {
      const int64_t steps = given_steps(shape, most);
      if (shape.input == "mask_positions") {
        masks_ = steps;
        continue;
      }
      if (given != 0 && given != steps) {
        throw ConfigError("E140", {}, "the inputs of --shape have different sizes")
            .help("they have equal numbers of steps: one --shape token_ids=STEPS is enough");
      }
      given = steps;
    }
    return given == 0 ? out : given;
  }

  int64_t given_steps(const InputShape& shape, int64_t most) const {
    std::vector<std::string> inputs = {"token_ids", "padding_mask"};
    if (model_.family == Family::kBert) {
      inputs.push_back("segment_ids");
    }
    if (model_.is_masked) {
      inputs.push_back("mask_positions");
    }
    const bool is_input = std::find(inputs.begin(), inputs.end(), shape.input) != inputs.end();
    if (model_.family == Family::kVit || !is_input || shape.sizes.size() != 1 ||
        shape.sizes[0] > most) {
      throw ConfigError(
          "E140", {},
          model_.family == Family::kVit
              ? "--shape, but the model's `image_shape` has all sizes"
              : fmt::format("--shape {}={} does not fit this {}", printable(shape.input),
                            fmt::join(shape.sizes, ","), model_.architecture))
          .help(model_.family == Family::kVit ? "leave --shape out"
                : model_.positions == 0
                    ? "write --shape token_ids=STEPS"
                    : fmt::format("write --shape token_ids=STEPS, at most {}", most));
    }
    return shape.sizes[0];
  }

  const ImportOptions& options_;
  const Json& json_;
  HuggingFaceModel model_;
  std::string policy_, start_, end_;
  int64_t masks_ = 0;  // --shape mask_positions
  std::vector<std::string> problems_, dropped_;
};

bool is_of_hub(const Json& json, const char* key, const char* end) {
  const Json* value = json.is_object() ? find_member(json, key) : nullptr;
  return value != nullptr && value->is_string() &&
         (starts_with(value->get<std::string>(), std::string("keras_hub") + end) ||
          starts_with(value->get<std::string>(), std::string("keras_nlp") + end));
}

}  // namespace

bool is_hub_model(const Json& json) {
  return is_of_hub(json, "registered_name", ">") || is_of_hub(json, "module", ".");
}

ImportedModel import_hub(const Json& json, const ImportOptions& options) {
  return HubImporter(json, options).run();
}

}  // namespace meshtrain
