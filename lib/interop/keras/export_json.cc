#include "interop/keras/export_json.h"

#include <time.h>

#include <algorithm>

#include "interop/keras/export_graph.h"
#include "interop/keras/export_objects.h"
#include "interop/keras/layer_order.h"
#include "interop/keras/weights.h"

namespace meshtrain {
namespace {

// The version whose format is written.
constexpr const char* kKerasVersion = "3.15.1";
constexpr const char* kCompile = "compile";  // for messages

// Layers within a layer compute in its dtype; cells of a stack have names.
void add_dtype(OrderedJson& config) {
  const auto add = [&](OrderedJson& inner) {
    inner["config"].emplace("dtype", OrderedJson(config["dtype"]));
    add_dtype(inner["config"]);
  };
  for (const char* inner : {"layer", "backward_layer", "cell"}) {
    if (config.contains(inner) && config[inner].is_object()) {
      add(config[inner]);
    }
  }
  if (config.contains("cells")) {
    for (OrderedJson& cell : config["cells"]) {
      add(cell);
    }
  }
}

// Keras Hub has a name for it; Keras has none.
OrderedJson tanh_gelu() {
  return {{"module", "builtins"},
          {"class_name", "function"},
          {"config", "keras_hub>gelu_approximate"},
          {"registered_name", "function"}};
}
bool is_tanh_gelu(const ConfigValue& value) {
  return value.is_object() && value.object().class_name == "gelu" &&
         value.object().boolean("approximate");
}

class JsonWriter {
 public:
  JsonWriter(const Config& config, const Model& model)
      : config_(config),
        model_(model),
        names_(model),
        configs_(config.model, model),
        graph_(model, names_, config.dtype_policy.value == "float64" ? "float64" : "float32") {}

  OrderedJson write() const {
    const bool sequential = is_keras_sequential(config_.model, model_);
    OrderedJson out =
        sequential ? serialized("keras", "Sequential", sequential_config())
                   : serialized("keras.src.models.functional", "Functional", functional_config());
    if (!sequential) {
      out["registered_name"] = "Functional";
    }
    out["build_config"] = {
        {"input_shape", sequential ? shape_json(first_input().output_shape) : OrderedJson()}};
    out["compile_config"] = compile_config();
    return out;
  }

 private:
  const Model::Call& first_input() const { return model_.calls()[model_.inputs()[0]]; }

  OrderedJson sequential_config() const {
    OrderedJson layers = OrderedJson::array();
    for (size_t i = 0; i < model_.calls().size(); ++i) {
      layers.push_back(layer(static_cast<int>(i)));
    }
    return {{"name", model_.name()},
            {"trainable", true},
            {"dtype", policy_json(config_.dtype_policy.value)},
            {"layers", std::move(layers)},
            {"build_input_shape", shape_json(first_input().output_shape)}};
  }

  OrderedJson functional_config() const {
    OrderedJson layers = OrderedJson::array();
    for (const int call : keras_layer_order(model_)) {
      if (graph_.program_of(call) != nullptr) {
        graph_.add_operations(call, layers);
        continue;
      }
      OrderedJson entry = layer(call);
      entry["name"] = names_.of_call(call);
      entry["inbound_nodes"] = graph_.inbound_nodes(call);
      layers.push_back(std::move(entry));
    }
    return {
        {"name", model_.name()},
        {"trainable", true},
        {"layers", std::move(layers)},
        {"input_layers", graph_.references(model_.inputs(), {})},
        {"output_layers", graph_.references(model_.outputs(), has_named_outputs(model_)
                                                                  ? model_.output_names()
                                                                  : std::vector<std::string>())}};
  }

  OrderedJson input_layer(int call) const {
    const Model::Call& entry = model_.calls()[call];
    const ConfigObject& object = configs_.of_call(call);
    Shape shape = entry.output_shape;
    if (object.has("batch_size")) {
      shape[0] = object.integer("batch_size");
    }
    return serialized("keras.layers", "InputLayer",
                      {{"batch_shape", shape_json(shape)},
                       {"dtype", std::string(dtype_name(entry.dtype))},
                       {"sparse", false},
                       {"ragged", false},
                       {"name", names_.of_call(call)},
                       {"optional", false}});
  }

  OrderedJson layer(int call) const {
    const Model::Call& entry = model_.calls()[call];
    if (entry.is_input) {
      return input_layer(call);
    }
    const ConfigObject& object = configs_.of_call(call);
    const std::string owner = fmt::format("layer `{}`", entry.name);
    const Layer& made = *model_.layers()[entry.layer];
    OrderedJson config = {
        {"name", names_.of_call(call)},
        {"trainable", made.trainable},
        {"dtype", policy_json(dtype_policy_name({made.dtype, made.variable_dtype}))}};
    for (const auto& [spec, value] : keras_args(object, Category::kLayer, true)) {
      if (!config.contains(spec->name)) {
        config[spec->name] = is_of_hub(object.class_name) && is_tanh_gelu(*value)
                                 ? tanh_gelu()
                                 : value_json(*value, *spec, owner);
      }
    }
    if (object.class_name.starts_with("SpatialDropout")) {
      config.erase("trainable");  // their constructors do not take it
    }
    if (object.class_name == "Discretization") {
      config.erase("trainable");
      config.erase("activity_regularizer");
    }
    add_dtype(config);
    if (const int table = tied_embedding(model_, made); table != kNone) {
      config["token_embedding"] = layer(table);
    }
    OrderedJson out = serialized_layer(object.class_name, std::move(config));
    const bool is_tied = std::any_of(model_.layers().begin(), model_.layers().end(),
                                     [&](const auto& other) { return other->tied == &made; });
    if (is_tied) {  // both places are one layer
      out["shared_object_id"] = entry.layer + 1;
    }
    return out;
  }

  OrderedJson named_or_object(const ConfigObject& object, Category category) const {
    const std::string name = bare_name(object, category);
    return name.empty() ? object_json(object, category, kCompile) : OrderedJson(name);
  }

  // One object for a single output, else a map by output; what is for all is for each.
  OrderedJson per_output(const std::vector<OutputObject>& entries, Category category,
                         bool as_lists) const {
    if (entries.empty()) {
      return nullptr;
    }
    const std::vector<std::string> outputs = keras_outputs(model_, names_);
    OrderedJson out = OrderedJson::object();
    for (size_t i = 0; i < outputs.size(); ++i) {
      OrderedJson list = OrderedJson::array();
      for (const ConfigObject* object : objects_of(entries, model_.output_names()[i])) {
        list.push_back(named_or_object(*object, category));
      }
      OrderedJson value = as_lists || list.empty() ? list : list[0];
      if (outputs.size() == 1) {
        return value;
      }
      if (!list.empty()) {
        out[outputs[i]] = std::move(value);
      } else if (!as_lists) {
        out[outputs[i]] = nullptr;  // Keras wants a loss or None for each
      }
    }
    return out;
  }

  OrderedJson compile_config() const {
    const CompileConfig& compile = config_.compile;
    OrderedJson weights;
    for (const auto& [output, weight] : keras_loss_weights(compile, model_, names_)) {
      weights[output] = weight;
    }
    if (weights.size() == 1 && model_.outputs().size() == 1) {
      weights = OrderedJson::array({weights.front()});
    }
    return {{"optimizer",
             object_json(keras_optimizer(config_, model_), Category::kOptimizer, kCompile)},
            {"loss", per_output(compile.loss, Category::kLoss, false)},
            {"loss_weights", std::move(weights)},
            {"metrics", per_output(compile.metrics, Category::kMetric, true)},
            {"weighted_metrics", per_output(compile.weighted_metrics, Category::kMetric, true)},
            {"run_eagerly", false},
            {"steps_per_execution", 1},
            {"jit_compile", "auto"}};
  }

  const Config& config_;
  const Model& model_;
  KerasNames names_;
  LayerConfigs configs_;
  KerasGraph graph_;
};

}  // namespace

std::string keras_json(const Config& config, const Model& model) {
  return JsonWriter(config, model).write().dump();
}

std::string keras_metadata(int64_t saved) {
  const time_t seconds = static_cast<time_t>(saved);
  tm utc = {};
  gmtime_r(&seconds, &utc);
  const std::string date =
      fmt::format("{:04}-{:02}-{:02}@{:02}:{:02}:{:02}", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return OrderedJson{{"keras_version", kKerasVersion}, {"date_saved", date}}.dump();
}

}  // namespace meshtrain
