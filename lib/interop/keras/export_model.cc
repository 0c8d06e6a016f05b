#include "interop/keras/export_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "config/scalars.h"
#include "config/tensor_expression.h"
#include "interop/keras/export_call.h"
#include "interop/keras/layer_order.h"
#include "interop/keras/weights.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

// Arguments that Keras' constructors do not have, or that name a layer which they take
// (tied_embedding()).
constexpr std::string_view kOurs[] = {"inputs", "call", "exclude_from_weight_decay", "pad_to",
                                      "token_embedding"};

// Arguments with a default here, which Keras' constructors require.
bool is_required_in_keras(const ConfigObject& object, const Spec& arg) {
  return arg.is_required ||
         (arg.name == "pool_size" && object.class_name.starts_with("AveragePooling"));
}

}  // namespace

std::string keras_module(Category category) {
  switch (category) {
    case Category::kLayer:
      return "keras.layers";
    case Category::kLoss:
      return "keras.losses";
    case Category::kMetric:
      return "keras.metrics";
    case Category::kOptimizer:
      return "keras.optimizers";
    case Category::kSchedule:
      return "keras.optimizers.schedules";
    case Category::kInitializer:
      return "keras.initializers";
    case Category::kRegularizer:
      return "keras.regularizers";
    case Category::kConstraint:
      return "keras.constraints";
    default:
      return "keras.activations";
  }
}

void refuse_export(const std::string& owner, const std::string& what, const std::string& help) {
  ConfigError error("E417", {}, fmt::format("{}: {} cannot be expressed in Keras", owner, what));
  throw help.empty() ? error : error.help(help);
}

const ClassSpec& class_of(const ConfigObject& object, Category category) {
  const ClassSpec* spec = find_class(category, object.class_name);
  MESHTRAIN_CHECK(spec != nullptr, "{}", object.class_name);
  if (category == Category::kMetric && spec->name == "Perplexity") {
    refuse_export("metric `Perplexity`", "a metric of Keras Hub");
  }
  if (category == Category::kMetric && spec->name == "BitsPerByte") {
    refuse_export("metric `BitsPerByte`", "a metric that Keras does not have");
  }
  if (category == Category::kLayer && spec->name == "SparseMoE") {  // within another layer
    refuse_export("layer `SparseMoE`", "a layer that Keras does not have");
  }
  return *spec;
}

std::vector<std::pair<const Spec*, const ConfigValue*>> keras_args(const ConfigObject& object,
                                                                   Category category,
                                                                   bool with_defaults) {
  std::vector<std::pair<const Spec*, const ConfigValue*>> out;
  for (const Spec& arg : class_of(object, category).args) {
    const auto found = object.args.find(arg.name);
    if (found == object.args.end() ||
        std::find(std::begin(kOurs), std::end(kOurs), arg.name) != std::end(kOurs)) {
      continue;
    }
    const ConfigValue& value = found->second;
    const bool is_left_out = value.is_null() ? value.is_default || arg.default_text == "null"
                                             : value.is_default && !with_defaults;
    if (is_left_out && !is_required_in_keras(object, arg)) {
      continue;
    }
    out.emplace_back(&arg, &value);
  }
  return out;
}

namespace {

ConfigObject with_prefix(ConfigObject optimizer, const std::string& prefix) {
  if (optimizer.has("inner_optimizer")) {
    ConfigValue& inner = optimizer.args["inner_optimizer"];
    inner.data = std::make_shared<ConfigObject>(with_prefix(inner.object(), prefix));
  }
  if (optimizer.class_name == "MultiOptimizer") {
    for (auto& [key, member] : std::get<ConfigValue::Dict>(optimizer.args["optimizer_map"].data)) {
      key = prefix + (key.find('|') == std::string::npos ? key : "(?:" + key + ")");
    }
  }
  return optimizer;
}

}  // namespace

ConfigObject keras_optimizer(const Config& config, const Model& model) {
  const ConfigObject& optimizer = config.compile.optimizer;
  return is_keras_sequential(config.model, model) ? with_prefix(optimizer, model.name() + "/")
                                                  : optimizer;
}

int tied_embedding(const Model& model, const Layer& layer) {
  if (layer.tied == nullptr) {
    return kNone;
  }
  if (layer.tied->class_name != "ReversibleEmbedding") {  // which alone is called with `reverse`
    refuse_export(fmt::format("layer `{}`", layer.name),
                  fmt::format("`token_embedding` of an {}", layer.tied->class_name));
  }
  for (size_t i = 0; i < model.calls().size(); ++i) {
    if (model.calls()[i].layer == layer.tied_index) {
      return static_cast<int>(i);
    }
  }
  return kNone;
}

std::string bare_name(const ConfigObject& object, Category category) {
  if (object.class_name == kLambda) {
    refuse_export(fmt::format("{} `{}`", category_name(category), object.string("function")),
                  "an expression");
  }
  if (const ClassSpec* word = find_word(category, object.class_name);
      word != nullptr && word->name == object.class_name) {
    const bool has_args = std::any_of(object.args.begin(), object.args.end(),
                                      [](const auto& arg) { return !arg.second.is_null(); });
    if (has_args || (category == Category::kMetric && word->name == "crossentropy")) {
      refuse_export(fmt::format("{} `{}`", category_name(category), object.spelled),
                    has_args ? "a word with arguments" : "a crossentropy that fits the shapes");
    }
    return object.spelled;
  }
  // Keras logs a metric that is a text under this text, and takes "Accuracy" for the word.
  const bool is_object = category == Category::kMetric && object.spelled == object.class_name &&
                         object.spelled != to_snake_case(object.spelled);
  return keras_args(object, category, false).empty() && !is_object ? object.spelled : "";
}

namespace {

bool joins_masks(const Model& model) {
  return std::any_of(model.calls().begin(), model.calls().end(), [&](const Model::Call& call) {
    return !call.is_input && call.has_mask &&
           model.layers()[call.layer]->class_name == "Concatenate";
  });
}

// "concatenate", "concatenate_1": names that Keras gives operations, when it loads a model.
bool is_name_of_operation(std::string_view name) {
  constexpr std::string_view kBase = "concatenate";
  return name == kBase || (name.starts_with(kBase) && name.substr(kBase.size(), 1) == "_" &&
                           try_integer(name.substr(kBase.size() + 1)));
}

}  // namespace

KerasNames::KerasNames(const Model& model) {
  std::set<std::string> taken;
  std::map<int, std::string> of_layer;
  const bool avoids_operations = joins_masks(model);
  const auto unique = [&](const std::string& name) {
    std::string out = name;
    std::replace(out.begin(), out.end(), '/', '_');
    if (avoids_operations && is_name_of_operation(out)) {
      out.replace(0, std::string_view("concatenate").size(), "concatenation");
    }
    const std::string base = out;
    for (int i = 1; !taken.insert(out).second; ++i) {
      out = fmt::format("{}_{}", base, i);
    }
    return out;
  };
  for (const Model::Call& call : model.calls()) {
    if (call.is_input) {
      names_.push_back(unique(call.name));
      continue;
    }
    const auto known = of_layer.find(call.layer);
    names_.push_back(known != of_layer.end() ? known->second
                                             : unique(model.layers()[call.layer]->name));
    of_layer.emplace(call.layer, names_.back());
  }
}

std::vector<std::string> keras_outputs(const Model& model, const KerasNames& names) {
  if (has_named_outputs(model)) {
    return model.output_names();
  }
  std::vector<std::string> out;
  for (const int call : model.outputs()) {
    out.push_back(names.of_call(call));
  }
  return out;
}

std::vector<const ConfigObject*> objects_of(const std::vector<OutputObject>& entries,
                                            const std::string& output) {
  std::vector<const ConfigObject*> out;
  for (const OutputObject& entry : entries) {
    if (entry.output.empty() || entry.output == output) {
      out.push_back(&entry.object);
    }
  }
  return out;
}

std::vector<std::pair<std::string, double>> keras_loss_weights(const CompileConfig& compile,
                                                               const Model& model,
                                                               const KerasNames& names) {
  const std::vector<std::string> outputs = keras_outputs(model, names);
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [output, weight] : compile.loss_weights) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (model.output_names()[i] == output) {
        out.emplace_back(outputs[i], weight.value);
      }
    }
  }
  return out;
}

namespace {

void refuse_untaken(const Model& model, int call) {
  const Model::Call& entry = model.calls()[call];
  const bool is_layer = !entry.is_input && entry.result_of == kNone &&
                        model.layers()[entry.layer]->program() == nullptr;
  if (!is_layer) {
    return;
  }
  if (const CallArguments given = call_arguments(model, call); !given.untaken.empty()) {
    refuse_export(fmt::format("layer `{}`", entry.name), fmt::format("`{}`", given.untaken),
                  given.reason);
  }
}

}  // namespace

LayerConfigs::LayerConfigs(const ModelConfig& config, const Model& model) {
  std::map<std::string, const ConfigObject*> by_name;
  for (const LayerConfig& layer : config.layers) {
    by_name.emplace(layer.name.value, &layer.object);
  }
  for (size_t i = 0; i < model.calls().size(); ++i) {
    const Model::Call& call = model.calls()[i];
    const auto found = by_name.find(call.is_input ? call.name : model.layers()[call.layer]->name);
    MESHTRAIN_CHECK(found != by_name.end(), "{}", call.name);
    refuse_untaken(model, static_cast<int>(i));
    if (found->second->class_name == "Discretization" && !found->second->has("bin_boundaries")) {
      refuse_export(fmt::format("layer `{}`", call.name),
                    "boundaries that come from the training data, not from `bin_boundaries`,");
    }
    if (found->second->class_name == "SplitSteps" && call.has_mask) {
      refuse_export(fmt::format("layer `{}`", call.name), "`SplitSteps` of steps with a mask");
    }
    if (found->second->class_name == "SparseMoE") {
      refuse_export(fmt::format("layer `{}`", call.name),
                    "`SparseMoE`, which neither Keras nor Keras Hub has as a layer of its own,");
    }
    if (found->second->has("rotary")) {
      refuse_export(fmt::format("layer `{}`", call.name), "`rotary`");
    }
    objects_.push_back(found->second);
  }
}

bool is_keras_sequential(const ModelConfig& config, const Model& model) {
  const auto is_plain = [&](size_t i) {
    const Model::Call& call = model.calls()[i];
    return call.is_input ||
           (call.result_of == kNone && model.layers()[call.layer]->program() == nullptr &&
            call_arguments(model, static_cast<int>(i)).is_plain());
  };
  bool are_plain = config.is_sequential;
  for (size_t i = 0; are_plain && i < model.calls().size(); ++i) {
    are_plain = is_plain(i);
  }
  return are_plain;
}

bool is_of_hub(std::string_view class_name) {
  static constexpr std::string_view kHub[] = {"TransformerEncoder",        "TransformerDecoder",
                                              "TokenAndPositionEmbedding", "PositionEmbedding",
                                              "RotaryEmbedding",           "SinePositionEncoding",
                                              "ViTPatchingAndEmbedding",   "MaskedLMHead"};
  return std::find(std::begin(kHub), std::end(kHub), class_name) != std::end(kHub);
}

}  // namespace meshtrain
