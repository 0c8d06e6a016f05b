#include "interop/huggingface/describe.h"

#include <fmt/format.h>

#include <cctype>

#include "base/text.h"
#include "config/flow.h"
#include "config/load.h"
#include "interop/huggingface/config_text.h"
#include "passes/simplify.h"

namespace meshtrain {
namespace {

constexpr int64_t kComparedBatch = 2;  // of the graphs that are compared

[[noreturn]] void refuse(const std::string& what) {
  throw ConfigError("E417", {}, fmt::format("{} cannot be expressed as a Hugging Face model", what))
      .help(
          "what is written: GPT-2, Llama, Mistral, BERT and ViT with the layers that `meshtrain "
          "import` gives them; .safetensors and .onnx take any model");
}

class Description {
 public:
  explicit Description(const Setup& setup) : model_(setup.model()) {
    for (const Weight* weight : model_.weights()) {
      shapes_.emplace(weight->path, weight->shape);
    }
  }

  HuggingFaceModel make() {
    if (has("patching_and_embedding/class_token")) {
      describe_vit();
    } else if (has("segment_embedding/embeddings")) {
      describe_bert();
    } else if (has("transformer_layer_0/self_attention_layernorm/scale")) {
      describe_llama();
    } else if (has("transformer_layer_0/self_attention/query/kernel") &&
               has("position_embedding/embeddings")) {
      describe_gpt2();
    } else {
      refuse(fmt::format("the model `{}`", model_.name()));
    }
    return out_;
  }

 private:
  bool has(const std::string& path) const { return shapes_.contains(path); }
  const Shape& shape(const std::string& path, size_t rank) const {
    const auto found = shapes_.find(path);
    if (found == shapes_.end() || found->second.size() != rank) {
      refuse(fmt::format("a model without `{}` of {} dimensions", path, rank));
    }
    return found->second;
  }
  const Layer* find(const std::string& name) const {
    for (const auto& layer : model_.layers()) {
      if (layer->name == name && layer->config() != nullptr) {
        return layer.get();
      }
    }
    return nullptr;
  }
  const ConfigObject& layer(const std::string& name, std::string_view class_name) const {
    const Layer* found = find(name);
    if (found == nullptr || found->class_name != class_name) {
      refuse(fmt::format("a model without the {} `{}`", class_name, name));
    }
    return *found->config();
  }
  double rate(const std::string& name) const {
    const Layer* found = find(name);
    return found != nullptr && found->class_name == "Dropout" ? found->config()->number("rate") : 0;
  }
  // Their word for the argument `activation`.
  std::string activation(const ConfigObject& object) const {
    const std::string text = yaml_flow(object.arg("activation"));
    for (const auto& [theirs, ours] : activation_names()) {
      if (ours == text) {
        return theirs;
      }
    }
    refuse(fmt::format("the activation `{}`", text));
  }
  int64_t steps() const { return model_.calls()[model_.inputs()[0]].output_shape.back(); }
  const std::string& output_layer() const {
    const Model::Call& call = model_.calls()[model_.outputs()[0]];
    return model_.layers()[call.layer]->name;
  }
  void count_blocks(const std::string& weight) {
    while (has(fmt::format("transformer_layer_{}/{}", out_.depth, weight))) {
      ++out_.depth;
    }
  }
  void read_token_table() {
    const Shape& table = shape("token_embedding/embeddings", 2);
    out_.tokens = table[0];
    out_.width = table[1];
    const std::string& last = output_layer();
    out_.has_head = last == "token_embedding" || last == "logits";
    out_.is_tied = !has("token_embedding/reverse_embeddings") && !has("logits/kernel");
  }

  void describe_gpt2() {
    out_.family = HuggingFaceFamily::kGpt2;
    read_token_table();
    out_.architecture = out_.has_head ? "GPT2LMHeadModel" : "GPT2Model";
    count_blocks("self_attention/query/kernel");
    out_.positions = shape("position_embedding/embeddings", 2)[0];
    const ConfigObject& attention =
        layer("transformer_layer_0/self_attention", "MultiHeadAttention");
    out_.heads = out_.key_heads = attention.integer("num_heads");
    out_.head_size = attention.integer("key_dim");
    out_.attention_dropout = attention.number("dropout");
    const std::string inner = "transformer_layer_0/feedforward_intermediate_dense";
    out_.inner = shape(inner + "/kernel", 2)[1];
    out_.activation = activation(layer(inner, "Dense"));
    out_.epsilon = layer("layer_norm", "LayerNormalization").number("epsilon");
    out_.embedding_dropout = rate("embeddings_dropout");
    out_.dropout = rate("transformer_layer_0/self_attention_dropout");
  }

  void describe_llama() {
    out_.family = HuggingFaceFamily::kLlama;
    read_token_table();
    count_blocks("self_attention/query/kernel");
    out_.positions = steps();
    const ConfigObject& attention =
        layer("transformer_layer_0/self_attention", "GroupQueryAttention");
    out_.heads = attention.integer("num_query_heads");
    out_.key_heads = attention.integer("num_key_value_heads");
    out_.head_size = attention.integer("head_dim");
    out_.attention_dropout = attention.number("dropout");
    out_.attention_bias = attention.boolean("use_bias");
    out_.sliding_window = attention.has("sliding_window") ? attention.integer("sliding_window") : 0;
    const std::string name = out_.sliding_window > 0 ? "Mistral" : "Llama";
    out_.architecture = name + (out_.has_head ? "ForCausalLM" : "Model");
    const std::string gate = "transformer_layer_0/feedforward_gate_dense";
    out_.inner = shape(gate + "/kernel", 2)[1];
    out_.activation = activation(layer(gate, "Dense"));
    out_.feedforward_bias = layer(gate, "Dense").boolean("use_bias");
    if (out_.sliding_window > 0 && (out_.attention_bias || out_.feedforward_bias)) {
      refuse("a Mistral with biases");
    }
    out_.epsilon =
        layer("transformer_layer_0/self_attention_layernorm", "RMSNormalization").number("epsilon");
    if (!attention.has("rotary")) {
      refuse("a Llama without `rotary`");
    }
    out_.rope = rope_of(attention.arg("rotary").object());
  }

  static RopeSettings rope_of(const ConfigObject& rotary) {
    RopeSettings out;
    out.theta = rotary.number("max_wavelength");
    if (rotary.has("frequency_adjustment_factor")) {
      out.type = RopeSettings::Type::kLlama3;
      out.factor = rotary.number("frequency_adjustment_factor");
      out.low_freq_factor = rotary.number("low_freq_factor");
      out.high_freq_factor = rotary.number("high_freq_factor");
      out.original_positions = rotary.integer("pretraining_sequence_length");
    } else if (rotary.number("scaling_factor") != 1) {
      out.type = RopeSettings::Type::kLinear;
      out.factor = rotary.number("scaling_factor");
    }
    return out;
  }

  void read_encoder() {
    count_blocks("self_attention_layer/query/kernel");
    const ConfigObject& block = layer("transformer_layer_0", "TransformerEncoder");
    const Shape& query = shape("transformer_layer_0/self_attention_layer/query/kernel", 3);
    out_.width = query[0];
    out_.heads = out_.key_heads = query[1];
    out_.head_size = query[2];
    out_.inner = block.integer("intermediate_dim");
    out_.activation = activation(block);
    out_.epsilon = block.number("layer_norm_epsilon");
    out_.dropout = out_.attention_dropout = block.number("dropout");
    out_.embedding_dropout = rate("embeddings_dropout");
    out_.head_dropout = rate("head_dropout");
    out_.has_pooler = has("pooled_dense/kernel");
    out_.has_head = has("classifier/kernel");
    if (out_.has_head) {
      out_.classes = shape("classifier/kernel", 2)[1];
    }
  }

  void describe_bert() {
    out_.family = HuggingFaceFamily::kBert;
    read_encoder();
    out_.is_masked = has("masked_lm_head/output_bias");
    out_.architecture = out_.is_masked  ? "BertForMaskedLM"
                        : out_.has_head ? "BertForSequenceClassification"
                                        : "BertModel";
    check_pooler(out_.is_masked || !out_.has_head || out_.has_pooler);
    out_.has_head = out_.has_head || out_.is_masked;
    out_.tokens = shape("token_embedding/embeddings", 2)[0];
    out_.positions = shape("position_embedding/embeddings", 2)[0];
    out_.segments = shape("segment_embedding/embeddings", 2)[0];
  }

  // transformers' class decides whether there is a pooler, not the file.
  void check_pooler(bool is_right) const {
    if (!is_right) {
      refuse(fmt::format("a classifier {} the Dense `pooled_dense`",
                         out_.has_pooler ? "with" : "without"));
    }
  }

  void describe_vit() {
    out_.family = HuggingFaceFamily::kVit;
    read_encoder();
    out_.architecture = out_.has_head ? "ViTForImageClassification" : "ViTModel";
    check_pooler(!out_.has_head || !out_.has_pooler);
    const ConfigObject& patches = layer("patching_and_embedding", "ViTPatchingAndEmbedding");
    const std::vector<int64_t> size = patches.arg("image_size").integers();
    out_.height = size[0];
    out_.image_width = size[1];
    out_.patch = patches.arg("patch_size").integers()[0];
    out_.channels = patches.integer("num_channels");
  }

  const Model& model_;
  std::map<std::string, Shape> shapes_;
  HuggingFaceModel out_;
};

// Whether two graphs compute the same of variables with the same rule_path(); names of layers and
// outputs do not count.
class GraphComparison {
 public:
  GraphComparison(const Graph& a, const Graph& b, HuggingFaceFamily family)
      : a_(a), b_(b), family_(family), matches_(a.values.size(), kNone) {}

  // The layer of `a` that differs; empty when none does.
  std::string difference() {
    if (a_.outputs.size() != b_.outputs.size()) {
      return "outputs";
    }
    for (size_t i = 0; i < a_.outputs.size(); ++i) {
      match(a_.outputs[i].value, b_.outputs[i].value);
    }
    return difference_;
  }

 private:
  void match(ValueId x, ValueId y) {
    if (!difference_.empty() || matches_[x] == y) {
      return;
    }
    const Node& a = a_.producer(x);
    const Node& b = b_.producer(y);
    const bool is_same = a.op == b.op && a_.shape(x) == b_.shape(y) && a_.dtype(x) == b_.dtype(y) &&
                         a_.values[x].result_index == b_.values[y].result_index &&
                         a.inputs.size() == b.inputs.size() && attributes(a) == attributes(b) &&
                         variable(a_, a) == variable(b_, b);
    if (!is_same) {
      difference_ = a.path.substr(0, a.path.rfind('/'));
      return;
    }
    matches_[x] = y;
    for (size_t i = 0; i < a.inputs.size(); ++i) {
      match(a.inputs[i], b.inputs[i]);
    }
  }
  // Without what is only a name.
  static Attrs attributes(const Node& node) {
    Attrs out = node.attrs;
    if (is_input(node)) {
      out.erase("name");
    }
    if (is_parameter(node)) {
      out.erase("variable");
    }
    if (node.has_attr("equation")) {
      out["equation"] = renamed(node.attr_string("equation"));
    }
    return out;
  }
  // An equation with its letters in order: "bti,io->bto" as "abc,cd->abd".
  static std::string renamed(std::string equation) {
    std::map<char, char> letters;
    for (char& c : equation) {
      if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
        c = letters.emplace(c, static_cast<char>('a' + letters.size())).first->second;
      }
    }
    return equation;
  }
  std::string variable(const Graph& graph, const Node& node) const {
    return is_parameter(node)
               ? rule_path(graph.variables[static_cast<size_t>(node.attr_int("variable"))].path,
                           family_)
               : "";
  }
  static bool is_input(const Node& node) { return node.inputs.empty() && node.has_attr("batch"); }
  static bool is_parameter(const Node& node) {
    return node.inputs.empty() && node.has_attr("variable");
  }

  const Graph& a_;
  const Graph& b_;
  HuggingFaceFamily family_;
  std::vector<ValueId> matches_;
  std::string difference_;
};

// The config that an import would write for `model`, for samples of the setup's length.
Config imported_config(const HuggingFaceModel& model, const Setup& setup) {
  ConfigTextOptions options;
  options.context = setup.model().calls()[setup.model().inputs()[0]].output_shape.back();
  options.masks = model.is_masked
                      ? setup.model().calls()[setup.model().inputs().back()].output_shape.back()
                      : 0;
  LoadOptions load;
  load.source =
      std::make_shared<SourceFile>(SourceFile{"config.yaml", huggingface_yaml(model, options)});
  load.overrides = {"dtype_policy=" + setup.config().dtype_policy.value};
  load.require_data = false;
  return load_config(load);
}

}  // namespace

std::string rule_path(const std::string& path, HuggingFaceFamily family) {
  if (family == HuggingFaceFamily::kLlama && path == "layer_norm/scale") {
    return "sequence_output_layernorm/scale";
  }
  return path == "logits/kernel" ? "token_embedding/reverse_embeddings" : path;
}

HuggingFaceModel describe_for_huggingface(const Setup& setup) {
  const HuggingFaceModel model = Description(setup).make();
  const Config config = imported_config(model, setup);
  const Setup imported(config, nullptr);
  const Graph own = simplify(setup.global_graph(StepKind::kPredict, kComparedBatch));
  const Graph other = simplify(imported.global_graph(StepKind::kPredict, kComparedBatch));
  if (const std::string layer = GraphComparison(own, other, model.family).difference();
      !layer.empty()) {
    refuse(fmt::format("`{}`, which is not computed as in a {},", layer, model.architecture));
  }
  return model;
}

}  // namespace meshtrain
