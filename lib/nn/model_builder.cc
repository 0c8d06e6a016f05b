// Makes a Model of its config: layers in order, their inputs and outputs, their weights.
#include <algorithm>
#include <map>

#include "base/suggest.h"
#include "base/text.h"
#include "config/layer_names.h"
#include "nn/arguments.h"
#include "nn/layers.h"
#include "nn/lora.h"
#include "nn/masks.h"
#include "nn/model.h"
#include "nn/regularizers.h"

namespace meshtrain {
namespace {

// Where the outputs of the layers seen so far are, by name.
using CallsByName = std::map<std::string, int, std::less<>>;

int find_call(const CallsByName& calls, const Located<std::string>& name, std::string_view what,
              Diagnostics& diagnostics) {
  const auto found = calls.find(name.value);
  if (found != calls.end()) {
    return found->second;
  }
  std::vector<std::string> names;
  for (const auto& [known, index] : calls) {
    names.push_back(known);
  }
  Diagnostic& problem = diagnostics.error(
      "E121", name.loc, fmt::format("{} `{}` is no earlier layer", what, name.value));
  suggest(problem, name.value, names);
  problem.help("a layer takes the outputs of layers written above it");
  return kNone;
}

// Shape and dtype of an Input; the shape is given without the batch.
Shape input_shape(const LayerConfig& config, Diagnostics& diagnostics) {
  Shape shape = {kUnknownDim};
  const ConfigValue& given = value_or_null(config.object, "shape");
  if (!given.is_list()) {
    diagnostics
        .error("E120", config.object.loc,
               fmt::format("Input `{}` needs a `shape`", config.name.value))
        .help("write the shape of one sample, such as `shape: [28, 28, 1]`");
    return failed_shape();
  }
  for (const int64_t size : given.integers()) {
    shape.push_back(size);
  }
  return shape;
}

DType input_dtype(const LayerConfig& config, DType floatx, Diagnostics& diagnostics) {
  const ConfigValue& given = value_or_null(config.object, "dtype");
  if (!given.is_string()) {
    return floatx;
  }
  const std::optional<DType> dtype = parse_dtype(given.string());
  if (!dtype) {
    diagnostics.error("E113", given.loc, fmt::format("`{}` is no dtype", given.string()))
        .help("write float32, float64, int32, int64 or uint8");
  }
  return dtype.value_or(floatx);
}

}  // namespace

// Builds a Model layer by layer. A layer that failed has the failed shape, and what depends on it
// is only looked at for its arguments.
class ModelBuilder {
 public:
  ModelBuilder(Model& model, Diagnostics& diagnostics) : model_(model), diagnostics_(diagnostics) {}

  void add(const LayerConfig& config) {
    if (calls_.contains(config.name.value)) {
      diagnostics_
          .error("E121", config.name.loc ? config.name.loc : config.object.loc,
                 fmt::format("two layers are called `{}`", config.name.value))
          .help("give each a `name` of its own");
      return;
    }
    Model::Call call;
    if (config.object.class_name == "Input") {
      call.is_input = true;
      call.output_shape = input_shape(config, diagnostics_);
      call.dtype = input_dtype(config, model_.policy_.floatx(), diagnostics_);
      call.layer = kNone;
      model_.inputs_.push_back(static_cast<int>(model_.calls_.size()));
    } else {
      add_call(config, call);
    }
    call.name = config.name.value;
    add_entry(std::move(call), config.name);
    add_further(static_cast<int>(model_.calls_.size()) - 1, config);
  }

  void finish(const ModelConfig& config) {
    add_outputs(config);
    check_rows_of_outputs();
    report_unused();
    add_lora_factors(model_.layers_, config.lora, diagnostics_);
    for (const auto& layer : model_.layers_) {
      model_.first_weight_.push_back(static_cast<int>(model_.weights_.size()));
      for (const Weight& weight : layer->weights) {
        check_penalties(weight);
        model_.weights_.push_back(&weight);
      }
    }
  }

 private:
  void add_entry(Model::Call call, const Located<std::string>& name) {
    calls_.emplace(call.name, static_cast<int>(model_.calls_.size()));
    names_.push_back(name);
    model_.calls_.push_back(std::move(call));
  }

  // Entries for the outputs of a call beside its first.
  void add_further(int call, const LayerConfig& config) {
    const Model::Call& first = model_.calls_[call];
    if (first.is_input || first.layer == kNone) {
      return;
    }
    const Layer& layer = *model_.layers_[first.layer];
    const std::vector<std::string> names = layer.config() == nullptr
                                               ? std::vector<std::string>()
                                               : further_outputs(*layer.config(), config.object);
    const std::vector<Shape> shapes =
        is_failed(first.output_shape) ? std::vector<Shape>() : layer.further_shapes();
    for (size_t i = 0; i < names.size(); ++i) {
      Model::Call entry;
      entry.name = config.name.value + "." + names[i];
      entry.layer = model_.calls_[call].layer;
      entry.result_of = call;
      entry.result = static_cast<int>(i);
      entry.dtype = model_.calls_[call].dtype;
      entry.output_shape = i < shapes.size() ? shapes[i] : failed_shape();
      entry.has_mask = model_.calls_[call].has_mask && shares_mask(layer, i);
      entry.rows = model_.calls_[call].rows;
      add_entry(std::move(entry), config.name);
    }
  }

  void add_call(const LayerConfig& config, Model::Call& call) {
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    bool inputs_ok = true;
    for (const Located<std::string>& input : config.inputs) {
      const int index = find_call(calls_, input, "input", diagnostics_);
      inputs_ok = inputs_ok && index != kNone && !is_failed(model_.calls_[index].output_shape);
      if (index != kNone) {
        call.inputs.push_back(index);
        shapes.push_back(model_.calls_[index].output_shape);
        dtypes.push_back(model_.calls_[index].dtype);
      }
    }
    if (config.inputs.empty()) {
      diagnostics_
          .error("E120", config.object.loc,
                 fmt::format("layer `{}` has no input", config.name.value))
          .help("begin the model with `Input: {shape: [...]}`, the shape of one sample");
      inputs_ok = false;
    }
    call.output_shape = failed_shape();
    call.dtype = model_.policy_.compute;
    Layer* layer = find_or_make(config, call);
    if (layer == nullptr || !inputs_ok) {
      return;
    }
    call.use = {config.input_roles, std::make_shared<const ConfigObject>(config.object)};
    layer->use = call.use;
    try {
      call.output_shape = layer->build(shapes, diagnostics_);
      call.dtype = layer->output_dtype(dtypes);
      if (!is_failed(call.output_shape)) {
        std::vector<bool> masked;
        for (const int input : call.inputs) {
          masked.push_back(model_.calls_[input].has_mask);
        }
        call.has_mask = propagates_mask(*layer, shapes, masked, diagnostics_);
        count_rows(*layer, call);
      }
      if (is_too_large(call.output_shape)) {
        diagnostics_
            .error("E120", layer->loc,
                   fmt::format("layer `{}` ({}) gives {}, more than 2^48 numbers", layer->name,
                               layer->class_name, shape_string(call.output_shape)))
            .help("make it smaller");
        call.output_shape = failed_shape();
        return;
      }
      if (layer->config() != nullptr && layer->config()->has("activity_regularizer")) {
        check_regularizer(layer->config()->arg("activity_regularizer").object(),
                          fmt::format("the output of `{}`", layer->name), call.output_shape,
                          diagnostics_);
      }
    } catch (const ConfigError& error) {
      diagnostics_.append(error.diagnostics());
    }
  }

  void count_rows(const Layer& layer, Model::Call& call) {
    std::vector<int64_t> rows;
    for (const int input : call.inputs) {
      rows.push_back(model_.calls_[input].rows);
    }
    call.rows = layer.rows_per_sample(rows);
    if (call.rows == 0) {
      diagnostics_
          .error("E121", layer.loc,
                 fmt::format("layer `{}` ({}) gets inputs with {} rows for each sample", layer.name,
                             layer.class_name, fmt::join(rows, ", ")))
          .help("what MergeSteps merged goes through SplitSteps before it meets what was not");
      call.output_shape = failed_shape();
    }
  }

  // Call accepts what some class takes when it is called; this one must.
  void check_call_arguments(const ConfigObject& call, const Layer& layer) {
    if (!call.has("call")) {
      return;
    }
    std::vector<std::string> known;
    if (const ClassSpec* spec = find_class(Category::kLayer, layer.class_name)) {
      for (const Spec& arg : spec->args) {
        known = arg.name == "call" ? arg.section->names() : known;
      }
    }
    for (const auto& [name, value] : call.arg("call").dict()) {
      if (!value.is_null() && std::find(known.begin(), known.end(), name) == known.end()) {
        diagnostics_
            .error("E111", value.loc,
                   fmt::format("`{}` ({}) takes no `{}` when it is called", layer.name,
                               layer.class_name, name))
            .help(known.empty() ? "leave `call` out" : "it takes: " + join(known, ", "));
      }
    }
  }

  // The layer of a call: a new one, or for Call an earlier one.
  Layer* find_or_make(const LayerConfig& config, Model::Call& call) {
    if (config.object.class_name == "Call") {
      const int earlier = find_call(calls_, config.shared_layer, "layer", diagnostics_);
      if (earlier == kNone || model_.calls_[earlier].layer == kNone) {
        if (earlier != kNone) {
          diagnostics_.error(
              "E121", config.shared_layer.loc,
              fmt::format("`{}` is an Input, which cannot be called", config.shared_layer.value));
        }
        call.layer = kNone;
        return nullptr;
      }
      call.layer = model_.calls_[earlier].layer;
      check_call_arguments(config.object, *model_.layers_[call.layer]);
      return model_.layers_[call.layer].get();
    }
    try {
      model_.layers_.push_back(make_layer(config, model_.policy_));
    } catch (const ConfigError& error) {
      diagnostics_.append(error.diagnostics());
      call.layer = kNone;
      return nullptr;
    }
    call.layer = static_cast<int>(model_.layers_.size()) - 1;
    return tie(config, *model_.layers_.back()) ? model_.layers_.back().get() : nullptr;
  }

  // Whether the layer that the config ties the new one to has been made, where there is one.
  bool tie(const LayerConfig& config, Layer& layer) {
    if (config.shared_layer.value.empty()) {
      return true;
    }
    const int earlier = find_call(calls_, config.shared_layer, "layer", diagnostics_);
    const int owner = earlier == kNone ? kNone : model_.calls_[earlier].layer;
    layer.tied = owner == kNone ? nullptr : model_.layers_[owner].get();
    layer.tied_index = owner;
    const bool is_input = earlier != kNone && model_.calls_[earlier].is_input;
    const std::string name = layer.tied != nullptr ? layer.tied->class_name
                             : is_input            ? "Input"
                                                   : "";
    if (!name.empty() && name != "ReversibleEmbedding" && name != "Embedding") {
      diagnostics_
          .error("E121", config.shared_layer.loc,
                 fmt::format("`{}` ({}) has no table of tokens", config.shared_layer.value, name))
          .help("name the ReversibleEmbedding or the Embedding of the tokens");
      return false;
    }
    return layer.tied != nullptr && !layer.tied->weights.empty();
  }

  void add_outputs(const ModelConfig& config) {
    if (config.outputs.empty()) {
      if (!model_.calls_.empty()) {
        model_.outputs_.push_back(model_.computing(static_cast<int>(model_.calls_.size()) - 1));
        model_.output_names_.push_back(names_.back().value);
      }
      return;
    }
    for (const auto& [name, layer] : config.outputs) {
      const int index = find_call(calls_, layer, "output", diagnostics_);
      if (index == kNone) {
        continue;
      }
      const auto& names = model_.output_names_;
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        diagnostics_.error("E121", layer.loc, fmt::format("two outputs are called `{}`", name));
      }
      model_.outputs_.push_back(index);
      model_.output_names_.push_back(name);
    }
  }

  void check_rows_of_outputs() {
    for (const int output : model_.outputs_) {
      const Model::Call& call = model_.calls_[output];
      if (call.rows > 1 && !is_failed(call.output_shape)) {
        diagnostics_
            .error("E121", model_.layers_[call.layer]->loc,
                   fmt::format("output `{}` is {} with {} rows for each sample", call.name,
                               shape_string(call.output_shape), call.rows))
            .help("add SplitSteps behind it");
      }
    }
  }

  void check_penalties(const Weight& weight) {
    const std::string name = fmt::format("`{}`", weight.path);
    if (weight.regularizer != nullptr) {
      check_regularizer(*weight.regularizer, name, weight.shape, diagnostics_);
      if (weight.regularizer->class_name == "OrthogonalRegularizer" &&
          weight.stored_shape() != weight.shape) {
        diagnostics_
            .error("E113", weight.regularizer->loc,
                   fmt::format("OrthogonalRegularizer depends on the number of rows of {}, which "
                               "`pad_to` changes",
                               name))
            .help("leave `pad_to` out");
      }
    }
    if (weight.constraint != nullptr) {
      check_constraint(*weight.constraint, name, weight.shape, diagnostics_);
    }
  }

  void report_unused() {
    if (model_.outputs_.empty() || diagnostics_.has_errors()) {
      return;
    }
    std::vector<bool> used(model_.calls_.size());
    for (const int output : model_.outputs_) {
      used[output] = true;
    }
    for (size_t i = model_.calls_.size(); i-- > 0;) {
      const int source = model_.computing(static_cast<int>(i));
      used[source] = used[source] || used[i];
      for (const int input : model_.calls_[i].inputs) {
        used[input] = used[input] || used[i];
      }
    }
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i] && model_.calls_[i].result_of == kNone) {
        const Model::Call& call = model_.calls_[i];
        diagnostics_
            .error("E121", call.is_input ? names_[i].loc : model_.layers_[call.layer]->loc,
                   fmt::format("no output depends on layer `{}`", names_[i].value))
            .help("remove it, use it as an input, or list it in `outputs`");
      }
    }
  }

  Model& model_;
  Diagnostics& diagnostics_;
  CallsByName calls_;
  std::vector<Located<std::string>> names_;  // of the calls
};

Model::Model(const ModelConfig& config, const DTypePolicy& policy, Diagnostics& diagnostics)
    : name_(config.name.value), policy_(policy) {
  ModelBuilder builder(*this, diagnostics);
  for (const LayerConfig& layer : config.layers) {
    builder.add(layer);
  }
  if (config.layers.empty()) {
    diagnostics.error("E120", config.loc, "the model has no layers");
  }
  builder.finish(config);
}

}  // namespace meshtrain
