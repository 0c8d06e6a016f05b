#include "config/layout_presets.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/suggest.h"
#include "base/text.h"
#include "config/layer_names.h"
#include "config/object_form.h"
#include "config/scalars.h"
#include "mesh/layout_map.h"

namespace meshtrain {
namespace {

// "layer_12/attention" as the pattern "layer_\d+/attention".
std::string pattern_of(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto is_digit = [&](size_t at) {
      return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0;
    };
    const bool is_number = is_digit(i) && (i == 0 || name[i - 1] == '_' || name[i - 1] == '/');
    if (!is_number) {
      out += std::string(name[i] == '.' ? "\\" : "") + name[i];
      continue;
    }
    out += "\\d+";
    while (is_digit(i + 1))
      ++i;
  }
  return out;
}

bool is_any(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class RuleList {
 public:
  // `axis_size`: 0 where it is not known.
  RuleList(std::string axis, int64_t axis_size, SourceLoc loc)
      : axis_(std::move(axis)), axis_size_(axis_size), loc_(std::move(loc)) {}

  // The dimension `split` of `rank` is over the axis.
  void add(const std::string& key, int rank, int split) {
    const bool is_known = std::any_of(rules_.begin(), rules_.end(),
                                      [&](const YamlNode& rule) { return rule.key == key; });
    const std::string beside = key.substr(pattern_.size());
    for (const std::string& variable : spelled_out(name_ + beside))
      variables_[key].push_back(variable);
    if (is_known)
      return;
    YamlNode rule{.kind = YamlNode::Kind::kList, .loc = loc_, .key = key, .key_loc = loc_};
    for (int dim = 0; dim < rank; ++dim) {
      rule.children.push_back(dim == split ? YamlNode::scalar(axis_, loc_)
                                           : YamlNode{.explicit_null = true, .loc = loc_});
    }
    rules_.push_back(std::move(rule));
  }
  void add_attention(const std::string& path, bool has_bias) {
    add_heads(path + "/(query|key|value)", 1, has_bias);
    add(path + "/attention_output/kernel", 3, 0);
  }
  // Heads of keys and values that the axis does not divide are replicated.
  void add_grouped_attention(const std::string& path, int64_t key_heads, bool has_bias) {
    if (axis_size_ == 0 || key_heads % axis_size_ == 0)
      return add_attention(path, has_bias);
    add_heads(path + "/query", 1, has_bias);
    add_heads(path + "/(key|value)", kReplicated, has_bias);
    add(path + "/attention_output/kernel", 3, 0);
  }
  void add_columns(const std::string& path, bool has_bias) {
    add(path + "/kernel", 2, 1);
    if (has_bias)
      add(path + "/bias", 1, 0);
  }
  void add_rows(const std::string& path) { add(path + "/kernel", 2, 0); }
  // Each expert as a feed-forward network, or whole experts.
  void add_split_experts(const std::string& path) {
    add(path + "/experts/expert_feedforward_(gate|intermediate)_dense", 3, 2);
    add(path + "/experts/expert_feedforward_output_dense", 3, 1);
  }
  void add_experts(const std::string& path) { add(path + "/experts/expert_.*", 3, 0); }

  // The layer that the next rules are for: its name, and the pattern with which their keys begin.
  void set_layer(const std::string& name, const std::string& pattern) {
    name_ = name;
    pattern_ = pattern;
  }

  bool is_empty() const { return rules_.empty(); }
  std::vector<YamlNode> take() { return std::move(rules_); }
  // Leaves the variables that a rule of `own` matches to that rule.
  void make_room(const std::vector<YamlNode>& own) {
    for (const YamlNode& other : own) {
      const std::optional<Pattern> pattern = pattern_or_none(other.key);
      const auto is_taken = [&](const std::string& variable) {
        return pattern && variable != other.key && pattern->full_match(variable);
      };
      std::erase_if(rules_, [&](const YamlNode& rule) {
        const auto& all = variables_[rule.key];
        return rule.key != other.key && std::all_of(all.begin(), all.end(), is_taken);
      });
      for (YamlNode& rule : rules_) {
        const std::vector<std::string> all = variables_[rule.key];
        if (rule.key != other.key && std::any_of(all.begin(), all.end(), is_taken)) {
          rule.key = fmt::format("(?!(?:{})$){}", other.key, rule.key);
          std::copy_if(all.begin(), all.end(), std::back_inserter(variables_[rule.key]),
                       [&](const std::string& variable) { return !is_taken(variable); });
        }
      }
    }
  }

 private:
  static constexpr int kReplicated = -2;  // no dimension of a kernel or of a bias

  // "q/(a|b)" as "q/a" and "q/b".
  static std::vector<std::string> spelled_out(const std::string& key) {
    const size_t open = key.find('('), close = key.find(')');
    if (open == std::string::npos || close == std::string::npos)
      return {key};
    std::vector<std::string> out;
    for (const std::string& word : split(key.substr(open + 1, close - open - 1), '|'))
      out.push_back(key.substr(0, open) + word + key.substr(close + 1));
    return out;
  }
  // A malformed pattern is reported where rules are read.
  static std::optional<Pattern> pattern_or_none(const std::string& key) {
    try {
      return Pattern(key);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }
  void add_heads(const std::string& path, int split, bool has_bias) {
    add(path + "/kernel", 3, split);
    if (has_bias)
      add(path + "/bias", 2, split - 1);
  }

  std::string axis_;
  int64_t axis_size_ = 0;
  SourceLoc loc_;
  std::string name_, pattern_;
  std::vector<YamlNode> rules_;
  std::map<std::string, std::vector<std::string>> variables_;  // of each key, those it is for
};

// A decoder attends to an encoder by name, or by the second place of a list.
bool has_encoder(const YamlNode* inputs) {
  if (inputs == nullptr)
    return false;
  if (inputs->is_list())
    return inputs->children.size() > 1;
  const YamlNode* encoder = inputs->find("encoder_sequence");
  return encoder != nullptr && !encoder->is_null();
}

void add_layer(const YamlNode& layer, const LayoutPreset& preset, RuleList& rules) {
  const auto form = object_form(layer, Category::kLayer);
  const ClassSpec* spec = form ? find_class(Category::kLayer, form->spelled) : nullptr;
  if (spec == nullptr || (preset.splits_experts && spec->name != "SparseMoE"))
    return;
  const auto argument = [&](const char* key) -> const YamlNode* {
    return form->args == nullptr ? nullptr : form->args->find(key);
  };
  const YamlNode* name = argument("name");
  const std::string path = name != nullptr && name->is_scalar()
                               ? pattern_of(name->text)
                               : automatic_name(spec->name) + "(_\\d+)?";
  rules.set_layer(name != nullptr && name->is_scalar() ? name->text : automatic_name(spec->name),
                  path);
  const YamlNode* bias = argument("use_bias");
  const bool has_bias = bias == nullptr || !bias->is_plain("false");
  if (spec->name == "SparseMoE") {
    preset.splits_experts ? rules.add_experts(path) : rules.add_split_experts(path);
  } else if (spec->name == "MultiHeadAttention") {
    rules.add_attention(path, has_bias);
  } else if (spec->name == "GroupQueryAttention") {
    const YamlNode* heads = argument("num_key_value_heads");
    const auto count = heads == nullptr ? std::nullopt : try_integer(heads->text);
    rules.add_grouped_attention(path, count.value_or(0), has_bias);
  } else if (is_any(spec->name, {"TransformerEncoder", "TransformerDecoder"})) {
    const bool is_encoder = spec->name == "TransformerEncoder";
    const YamlNode* inputs = argument("inputs");
    rules.add_attention(path + (is_encoder ? "/self_attention_layer" : "/self_attention"), true);
    if (!is_encoder && has_encoder(inputs))
      rules.add_attention(path + "/cross_attention", true);
    rules.add_columns(path + "/feedforward_intermediate_dense", true);
    rules.add_rows(path + "/feedforward_output_dense");
  } else if (spec->name == "Dense" && name != nullptr) {
    const std::string last = name->text.substr(name->text.rfind('/') + 1);
    if (is_any(last, {"feedforward_intermediate_dense", "feedforward_gate_dense", "up", "gate",
                      "fc1", "up_proj", "gate_proj"}))
      rules.add_columns(path, has_bias);
    else if (is_any(last, {"feedforward_output_dense", "down", "fc2", "down_proj"}))
      rules.add_rows(path);
  }
}

// The steps of each embedding (batch, steps, features) over `axis`, its batch over `batch`. What
// comes before and after is split alike; attention gathers keys and values.
std::vector<YamlNode> step_rules(const YamlNode& layers, const std::string& batch,
                                 const std::string& axis, const YamlNode& named,
                                 Diagnostics& diagnostics) {
  std::vector<YamlNode> rules;
  for (const YamlNode& layer : layers.children) {
    const auto form = object_form(layer, Category::kLayer);
    if (!form ||
        !is_any(form->spelled, {"Embedding", "ReversibleEmbedding", "TokenAndPositionEmbedding"}))
      continue;
    const YamlNode* name = form->args == nullptr ? nullptr : form->args->find("name");
    const std::string path = name != nullptr && name->is_scalar()
                                 ? pattern_of(name->text)
                                 : automatic_name(form->spelled) + "(_\\d+)?";
    YamlNode rule{.kind = YamlNode::Kind::kList,
                  .loc = named.loc,
                  .key = path + "/output",
                  .key_loc = named.loc};
    rule.children = {YamlNode::scalar(batch, named.loc), YamlNode::scalar(axis, named.loc),
                     YamlNode{.explicit_null = true, .loc = named.loc}};
    rules.push_back(std::move(rule));
  }
  if (rules.empty()) {
    diagnostics
        .error("E113", named.loc,
               fmt::format("`{}` finds no embedding whose steps it could split", named.text))
        .help("write the layout of the first layer with steps: `x/output: [data, seq, null]`");
  }
  return rules;
}

const LayoutPreset* find_preset(const YamlNode& named, Diagnostics& diagnostics) {
  std::vector<std::string> names;
  for (const LayoutPreset& preset : layout_presets()) {
    if (preset.name == named.text)
      return &preset;
    names.push_back(preset.name);
  }
  Diagnostic& d = diagnostics.error(
      "E113", named.loc,
      fmt::format("`{}` is no preset of `layout_map`: {}", named.text, join(names, ", ")));
  suggest(d, named.text, names);
  return nullptr;
}

// `batch_dim_name`, else the first axis.
std::string batch_axis(const YamlNode& distribution) {
  const YamlNode* given = distribution.find("batch_dim_name");
  if (given != nullptr && given->is_scalar() && !given->text.empty())
    return given->text;
  const YamlNode* mesh = distribution.find("device_mesh");
  const YamlNode* names = mesh == nullptr ? nullptr : mesh->find("axis_names");
  return names != nullptr && !names->children.empty() ? names->children.front().text : "batch";
}

// Of the mesh's last axis; 0 where it is not written as a number.
int64_t last_axis_size(const YamlNode& distribution) {
  const YamlNode* mesh = distribution.find("device_mesh");
  const YamlNode* shape = mesh == nullptr ? nullptr : mesh->find("shape");
  if (shape == nullptr || (shape->is_list() && shape->children.empty()))
    return 0;
  const std::string& text = shape->is_list() ? shape->children.back().text : shape->text;
  return try_integer(text.substr(text.rfind('x') + 1)).value_or(0);
}

// As many devices on a batch axis and a model axis; an example where the mesh says no number.
std::string shape_with_model_axis(const YamlNode& distribution) {
  const int64_t devices = last_axis_size(distribution);
  const int64_t parts = devices % 2 == 0 ? 2 : devices;
  return devices > 1 ? fmt::format("[{}, {}]", devices / parts, parts) : "[4, 2]";
}

// The last axis of the mesh. Where there is only one: that one for experts, else empty, after an
// error.
std::string model_axis(const YamlNode& distribution, const YamlNode& named,
                       const LayoutPreset& preset, Diagnostics& diagnostics) {
  const YamlNode* mesh = distribution.find("device_mesh");
  const YamlNode* names = mesh == nullptr ? nullptr : mesh->find("axis_names");
  const YamlNode* shape = mesh == nullptr ? nullptr : mesh->find("shape");
  const bool has_names = names != nullptr && names->is_list() && !names->children.empty();
  const bool has_two = has_names ? names->children.size() > 1
                                 : shape != nullptr && (shape->children.size() > 1 ||
                                                        shape->text.find('x') != std::string::npos);
  if (has_two && !has_names)
    return "model";  // as a mesh of two axes is named without it
  if (!has_two && preset.splits_experts)
    return batch_axis(distribution);
  if (!has_two) {
    diagnostics
        .error(
            "E113", named.loc,
            fmt::format("`{}` needs a mesh of two axes, the batch's and the model's", named.text))
        .help(fmt::format("write `shape: {}, axis_names: [batch, model]`, or `layout_map: fsdp` "
                          "for one axis",
                          shape_with_model_axis(distribution)));
    return "";
  }
  return names->children.back().text;
}

std::vector<YamlNode> split_rules(const YamlNode& root, const YamlNode& distribution,
                                  const YamlNode& named, const LayoutPreset& preset,
                                  const std::vector<YamlNode>& own, Diagnostics& diagnostics) {
  const std::string axis = model_axis(distribution, named, preset, diagnostics);
  const YamlNode* model = root.find("model");
  const YamlNode* layers = model == nullptr ? nullptr : model->find("layers");
  if (axis.empty() || layers == nullptr || !layers->is_list())
    return {};
  if (preset.splits_steps)
    return step_rules(*layers, batch_axis(distribution), axis, named, diagnostics);
  RuleList rules(axis, last_axis_size(distribution), named.loc);
  for (const YamlNode& layer : layers->children)
    add_layer(layer, preset, rules);
  const bool knows_layers = !rules.is_empty();
  rules.make_room(own);
  std::vector<YamlNode> all = rules.take();
  if (!knows_layers) {
    diagnostics
        .error("E113", named.loc, fmt::format("`{}` knows no layer of this model", named.text))
        .help(
            preset.splits_experts
                ? "it splits the experts of SparseMoE layers; `megatron` splits other layers"
                : "it splits attention layers, TransformerEncoder, TransformerDecoder, SparseMoE, "
                  "and Dense layers named up, gate, down, or as in Keras Hub; `meshtrain "
                  "suggest` finds other rules");
  }
  return all;
}

// Steps that all devices of the experts' axis compute alike would be computed several times.
void split_batch_too(YamlNode& distribution, const YamlNode& named, const LayoutPreset& preset) {
  Diagnostics reported;
  const std::string batch = batch_axis(distribution);
  const std::string experts = model_axis(distribution, named, preset, reported);
  const YamlNode* given = distribution.find("batch_dim_name");
  if ((given != nullptr && !given->is_null()) || batch == experts)
    return;
  YamlNode& axes = distribution.at_or_add("batch_dim_name", named.loc);
  axes.kind = YamlNode::Kind::kList;
  axes.explicit_null = false;
  axes.loc = named.loc;
  axes.children = {YamlNode::scalar(batch, named.loc), YamlNode::scalar(experts, named.loc)};
}

void set_zero(YamlNode& distribution, const YamlNode& named, Diagnostics& diagnostics) {
  YamlNode& zero = distribution.at_or_add("zero", named.loc);
  if (zero.is_null()) {
    zero.kind = YamlNode::Kind::kScalar;
    zero.explicit_null = false;
    zero.text = "3";
  } else if (try_integer(zero.text).value_or(3) < 3) {
    diagnostics
        .error("E113", zero.loc,
               fmt::format("`zero: {}` with `layout_map: {}`, which is `zero: 3`", zero.text,
                           named.text))
        .note(fmt::format("`{}` is at {}", named.text, named.loc.to_string()))
        .help(named.text == "fsdp"
                  ? "leave one of the two out"
                  : fmt::format("leave `zero` out, or write `layout_map: megatron` for `zero: {}`",
                                zero.text));
  }
}

}  // namespace

const std::vector<LayoutPreset>& layout_presets() {
  static const std::vector<LayoutPreset> kPresets = {
      {"megatron", "splits attention by heads and feed-forward layers over the last axis", true},
      {"fsdp", "zero: 3, without rules", false, true},
      {"megatron_fsdp", "both", true, true},
      {"context", "splits the steps of embeddings over the last axis", false, false, true},
      {"expert", "splits the experts of SparseMoE over the last axis, and the batch over both",
       false, false, false, true},
  };
  return kPresets;
}

void expand_layout_preset(YamlNode& root, Diagnostics& diagnostics) {
  YamlNode* distribution = root.find("distribution");
  YamlNode* map = distribution == nullptr ? nullptr : distribution->find("layout_map");
  YamlNode* found = map == nullptr ? nullptr : map->is_scalar() ? map : map->find("preset");
  if (found == nullptr || !found->is_scalar())
    return;
  const YamlNode named = *found;
  const LayoutPreset* preset = find_preset(named, diagnostics);
  std::vector<YamlNode> own;
  for (YamlNode& child : map->children) {
    if (child.key != "preset")
      own.push_back(std::move(child));
  }
  if (preset != nullptr &&
      (preset->splits_layers || preset->splits_steps || preset->splits_experts)) {
    for (YamlNode& rule : split_rules(root, *distribution, named, *preset, own, diagnostics)) {
      const bool is_own = std::any_of(own.begin(), own.end(),
                                      [&](const YamlNode& other) { return other.key == rule.key; });
      if (!is_own)
        own.push_back(std::move(rule));
    }
  }
  if (own.empty()) {
    distribution->erase("layout_map");
  } else {
    map->kind = YamlNode::Kind::kMap;
    map->text.clear();
    map->children = std::move(own);
  }
  if (preset != nullptr && preset->splits_experts)
    split_batch_too(*distribution, named, *preset);
  if (preset != nullptr && preset->shards_weights)
    set_zero(*distribution, named, diagnostics);
}

}  // namespace meshtrain
