#include "interop/keras/export_json.h"

#include <time.h>

#include <map>

#include "base/text.h"
#include "interop/keras/export_model.h"
#include "interop/keras/weights.h"
#include "nn/arguments.h"
#include "nn/lambda.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

// The version whose format is written.
constexpr const char* kKerasVersion = "3.15.1";

OrderedJson serialized(const std::string& module, const std::string& class_name,
                       OrderedJson config) {
  return {{"module", module},
          {"class_name", class_name},
          {"config", std::move(config)},
          {"registered_name", nullptr}};
}

OrderedJson serialized_layer(const std::string& class_name, OrderedJson config) {
  // Classes that Keras and Keras Hub have without giving them a public name.
  static constexpr std::pair<const char*, const char*> kUnnamed[] = {
      {"LayerScale", "keras.src.applications.convnext"},
      {"StochasticDepth", "keras.src.applications.convnext"},
      {"CustomScaleLayer", "keras.src.applications.inception_resnet_v2"},
      {"ViTPatchingAndEmbedding", "keras_hub.src.models.vit.vit_layers"}};
  for (const auto& [name, module] : kUnnamed) {
    if (class_name == name) {
      OrderedJson out = serialized(module, class_name, std::move(config));
      out["registered_name"] = class_name;
      return out;
    }
  }
  if (!is_of_hub(class_name)) {
    return serialized("keras.layers", class_name, std::move(config));
  }
  OrderedJson out = serialized("keras_hub.layers", class_name, std::move(config));
  out["registered_name"] = "keras_hub>" + class_name;
  return out;
}

OrderedJson policy(const std::string& name) {
  return serialized("keras", "DTypePolicy", {{"name", name}});
}

OrderedJson sizes(const Shape& shape) {
  OrderedJson out = OrderedJson::array();
  for (const int64_t size : shape) {
    out.push_back(size == kUnknownDim ? OrderedJson() : OrderedJson(size));
  }
  return out;
}

class JsonWriter {
 public:
  JsonWriter(const Config& config, const Model& model)
      : config_(config), model_(model), names_(model), configs_(config.model, model) {
    for (const auto& call : model.calls()) {
      nodes_.push_back(call.is_input             ? 0
                       : call.result_of != kNone ? nodes_[call.result_of]
                                                 : calls_of_layer_[call.layer]++);
    }
  }

  OrderedJson write() {
    const bool sequential = is_keras_sequential(config_.model, model_);
    OrderedJson out =
        sequential ? serialized("keras", "Sequential", sequential_config())
                   : serialized("keras.src.models.functional", "Functional", functional_config());
    if (!sequential) {
      out["registered_name"] = "Functional";
    }
    out["build_config"] = {
        {"input_shape", sequential ? sizes(first_input().output_shape) : OrderedJson()}};
    out["compile_config"] = compile_config();
    return out;
  }

 private:
  const Model::Call& first_input() const { return model_.calls()[model_.inputs()[0]]; }

  OrderedJson sequential_config() {
    OrderedJson layers = OrderedJson::array();
    for (size_t i = 0; i < model_.calls().size(); ++i) {
      layers.push_back(layer(static_cast<int>(i)));
    }
    return {{"name", model_.name()},
            {"trainable", true},
            {"dtype", policy(config_.dtype_policy.value)},
            {"layers", std::move(layers)},
            {"build_input_shape", sizes(first_input().output_shape)}};
  }

  OrderedJson functional_config() {
    OrderedJson layers = OrderedJson::array();
    for (const int call : keras_layer_order(model_)) {
      if (program_of(call) != nullptr) {
        add_operations(call, layers);
        continue;
      }
      OrderedJson entry = layer(call);
      entry["name"] = names_.of_call(call);
      entry["inbound_nodes"] = inbound_nodes(call);
      layers.push_back(std::move(entry));
    }
    return {{"name", model_.name()},
            {"trainable", true},
            {"layers", std::move(layers)},
            {"input_layers", references(model_.inputs(), {})},
            {"output_layers",
             references(model_.outputs(), has_named_outputs(model_) ? model_.output_names()
                                                                    : std::vector<std::string>())}};
  }

  const TensorProgram* program_of(int call) const {
    const Model::Call& entry = model_.calls()[call];
    return entry.is_input ? nullptr : program_of_layer(*model_.layers()[entry.layer]);
  }

  // A Lambda's result is that of its last operation, or an input.
  OrderedJson reference(int call) const {
    const TensorProgram* program = program_of(call);
    const Model::Call& entry = model_.calls()[call];
    const int tensor = entry.result_of == kNone ? 0 : 1 + entry.result;
    return program != nullptr ? operand_reference(call, program->result)
                              : OrderedJson::array({names_.of_call(call), nodes_[call], tensor});
  }

  // --- operations ------------------------------------------------------------------------------

  // The operation that gives the result has the Lambda's name; the others follow it.
  std::string operation_name(int call, int tensor) const {
    const TensorProgram& program = *program_of(call);
    const size_t index = static_cast<size_t>(tensor) - program.inputs.size();
    return tensor == program.result ? names_.of_call(call)
                                    : fmt::format("{}_{}_{}", names_.of_call(call),
                                                  program.calls[index].operation->name, index + 1);
  }

  // Tensor `tensor` of the program of a call.
  OrderedJson operand_reference(int call, int tensor) const {
    const auto num_inputs = static_cast<int>(program_of(call)->inputs.size());
    return tensor < num_inputs
               ? reference(model_.calls()[call].inputs[tensor])
               : OrderedJson::array({operation_name(call, tensor), nodes_[call], 0});
  }

  static OrderedJson constant(const ExprValue& value) {
    if (const auto* list = std::get_if<std::vector<ExprValue>>(&value.data)) {
      OrderedJson out = OrderedJson::array();
      for (const ExprValue& entry : *list) {
        out.push_back(constant(entry));
      }
      return out;
    }
    return std::visit(
        [](const auto& plain) -> OrderedJson {
          using T = std::decay_t<decltype(plain)>;
          if constexpr (std::is_same_v<T, std::monostate> ||
                        std::is_same_v<T, std::vector<ExprValue>>) {
            return nullptr;
          } else {
            return plain;
          }
        },
        value.data);
  }

  // Slices and `...` of an index as Keras wraps them.
  static OrderedJson index(const ExprValue& key) {
    OrderedJson out = OrderedJson::array();
    for (const ExprValue& entry : std::get<std::vector<ExprValue>>(key.data)) {
      if (const auto* slice = std::get_if<std::vector<ExprValue>>(&entry.data)) {
        out.push_back({{"class_name", "__slice__"},
                       {"config",
                        {{"start", constant((*slice)[0])},
                         {"stop", constant((*slice)[1])},
                         {"step", constant((*slice)[2])}}}});
      } else if (std::holds_alternative<std::string>(entry.data)) {
        out.push_back({{"class_name", "__ellipsis__"}, {"config", OrderedJson::object()}});
      } else {
        out.push_back(constant(entry));
      }
    }
    return out;
  }

  OrderedJson operand(int call, const Operand& operand, const std::vector<TensorType>& types) {
    if (operand.is_tensor()) {
      const TensorType& type = types[static_cast<size_t>(operand.tensor)];
      return tensor_json(type.shape, type.dtype, operand_reference(call, operand.tensor));
    }
    if (!operand.is_list) {
      const bool is_table = std::holds_alternative<std::vector<ExprValue>>(operand.constant.data);
      return is_table
                 ? OrderedJson{{"class_name", "__numpy__"},
                               {"config",
                                {{"value", constant(operand.constant)},
                                 {"dtype", config_.dtype_policy.value == "float64" ? "float64"
                                                                                   : "float32"}}}}
                 : constant(operand.constant);
    }
    OrderedJson out = OrderedJson::array();
    for (const Operand& entry : operand.list) {
      out.push_back(this->operand(call, entry, types));
    }
    return out;
  }

  // The operations of a Lambda, with a node for each of its calls.
  void add_operations(int first, OrderedJson& layers) {
    const TensorProgram& program = *program_of(first);
    const int layer = model_.calls()[first].layer;
    for (size_t i = 0; i < program.calls.size(); ++i) {
      const TensorProgram::Call& operation = program.calls[i];
      const std::string name = operation_name(first, static_cast<int>(program.inputs.size() + i));
      OrderedJson config = {{"name", name}};
      for (const auto& [key, value] : operation.arguments) {
        if (!operation.operation->is_call_argument(key)) {
          config[key] = constant(value);
        }
      }
      const std::string class_name(operation.operation->class_name);
      OrderedJson entry = serialized(fmt::format("keras.src.ops.{}", operation.operation->module),
                                     class_name, std::move(config));
      entry["registered_name"] = class_name;
      entry["name"] = name;
      entry["inbound_nodes"] = OrderedJson::array();
      for (size_t call = 0; call < model_.calls().size(); ++call) {
        if (!model_.calls()[call].is_input && model_.calls()[call].layer == layer) {
          entry["inbound_nodes"].push_back(operation_node(static_cast<int>(call), operation));
        }
      }
      layers.push_back(std::move(entry));
    }
  }

  OrderedJson operation_node(int call, const TensorProgram::Call& operation) {
    const Model::Call& entry = model_.calls()[call];
    std::vector<TensorType> inputs;
    for (const int input : entry.inputs) {
      inputs.push_back({model_.calls()[input].output_shape, model_.calls()[input].dtype});
    }
    const std::vector<TensorType> types =
        infer_tensors(*program_of(call), inputs, model_.layers()[entry.layer]->variable_dtype);
    OrderedJson args = OrderedJson::array();
    for (const Operand& one : operation.operands) {
      args.push_back(operand(call, one, types));
    }
    for (const auto& [key, value] : operation.arguments) {
      if (operation.operation->is_call_argument(key)) {
        args.push_back(key == "key" ? index(value) : constant(value));
      }
    }
    return {{"args", std::move(args)}, {"kwargs", OrderedJson::object()}};
  }

  // --- layers ----------------------------------------------------------------------------------

  OrderedJson references(const std::vector<int>& calls,
                         const std::vector<std::string>& names) const {
    if (calls.size() == 1 && names.empty()) {
      return reference(calls[0]);
    }
    OrderedJson out = names.empty() ? OrderedJson::array() : OrderedJson::object();
    for (size_t i = 0; i < calls.size(); ++i) {
      if (names.empty()) {
        out.push_back(reference(calls[i]));
      } else {
        out[names[i]] = reference(calls[i]);
      }
    }
    return out;
  }

  // A table of ReversibleEmbedding that makes logits of vectors.
  static bool turns_back(const Model::Call& call) {
    const ConfigValue* reverse = call.use.call_argument("reverse");
    return reverse != nullptr && reverse->is_bool() && reverse->boolean();
  }

  OrderedJson inbound_nodes(int first) const {
    OrderedJson out = OrderedJson::array();
    const Model::Call& call = model_.calls()[first];
    for (size_t i = 0; !call.is_input && i < model_.calls().size(); ++i) {
      const Model::Call& other = model_.calls()[i];
      if (other.is_input || other.result_of != kNone || other.layer != call.layer) {
        continue;
      }
      if (const int at = static_cast<int>(i); has_keywords(model_, at)) {
        out.push_back(keyword_node(at));
        continue;
      }
      OrderedJson tensors = OrderedJson::array();
      for (const int input : model_.calls()[i].inputs) {
        tensors.push_back(tensor(input));
      }
      const bool as_list = takes_list(model_, static_cast<int>(i));
      OrderedJson keywords = OrderedJson::object();
      if (turns_back(other)) {
        keywords["reverse"] = true;
      }
      if (tensors.size() == 2 && model_.layers()[other.layer]->class_name == "CategoryEncoding") {
        keywords["count_weights"] = tensors[1];  // Keras takes no second positional argument
        tensors.erase(1);
      }
      out.push_back({{"args", as_list ? OrderedJson::array({std::move(tensors)}) : tensors},
                     {"kwargs", std::move(keywords)}});
    }
    return out;
  }

  OrderedJson keyword_node(int call) const {
    const Model::Call& entry = model_.calls()[call];
    const std::string& name = model_.layers()[entry.layer]->class_name;
    const bool is_list = name == "Attention" || name == "AdditiveAttention";
    const std::vector<std::string> positional =
        is_list ? std::vector<std::string>{"query", "value"} : positional_roles(name);
    OrderedJson args = OrderedJson::array(), keywords = OrderedJson::object();
    if (positional.empty()) {  // a recurrent layer
      args.push_back(tensor(entry.inputs[0]));
      const std::span<const int> given = std::span(entry.inputs).subspan(1);
      for (const std::vector<int>& states :
           nested_states(*model_.layers()[entry.layer]->config(), given)) {
        OrderedJson tensors = OrderedJson::array();
        for (const int state : states) {
          tensors.push_back(tensor(state));
        }
        keywords["initial_state"].push_back(states.size() == 1 ? tensors[0] : tensors);
      }
      return {{"args", std::move(args)}, {"kwargs", std::move(keywords)}};
    }
    std::vector<std::string> roles = entry.use.roles;
    if (roles.empty()) {
      roles = positional;
      roles.emplace_back("key");
    }
    const bool is_self = entry.inputs.size() == 1 && positional.front() == "query";
    const size_t given = is_self ? 2 : std::min(roles.size(), entry.inputs.size());
    for (size_t i = 0; i < given; ++i) {
      const std::string& role = roles[i];
      if (role == "positions" || role == "segments" ||
          (is_list && (role == "query_mask" || role == "value_mask"))) {
        refuse_export(fmt::format("layer `{}`", entry.name), fmt::format("`{}`", role));
      }
      keywords[role] = tensor(entry.inputs[is_self ? 0 : i]);
    }
    for (const char* role :
         {"query", "value", "key", "inputs", "decoder_sequence", "encoder_sequence"}) {
      const bool is_positional =
          is_list || std::find(positional.begin(), positional.end(), role) != positional.end();
      if (is_positional && keywords.contains(role)) {
        args.push_back(keywords[role]);
        keywords.erase(role);
      }
    }
    for (const char* flag : {"use_causal_mask", "return_attention_scores"}) {
      if (const ConfigValue* given = entry.use.call_argument(flag)) {
        keywords[flag] = given->is_bool() && given->boolean();
      }
    }
    return {{"args", is_list ? OrderedJson::array({std::move(args)}) : std::move(args)},
            {"kwargs", std::move(keywords)}};
  }

  OrderedJson tensor(int call) const {
    const Model::Call& from = model_.calls()[call];
    return tensor_json(from.output_shape, from.dtype, reference(call));
  }

  static OrderedJson tensor_json(const Shape& shape, DType dtype, OrderedJson history) {
    return {{"class_name", "__keras_tensor__"},
            {"config",
             {{"shape", sizes(shape)},
              {"dtype", std::string(dtype_name(dtype))},
              {"keras_history", std::move(history)}}}};
  }

  OrderedJson layer(int call) {
    const Model::Call& entry = model_.calls()[call];
    const ConfigObject& object = configs_.of_call(call);
    owner_ = fmt::format("layer `{}`", entry.name);
    if (entry.is_input) {
      Shape shape = entry.output_shape;
      if (object.has("batch_size")) {
        shape[0] = object.integer("batch_size");
      }
      return serialized("keras.layers", "InputLayer",
                        {{"batch_shape", sizes(shape)},
                         {"dtype", std::string(dtype_name(entry.dtype))},
                         {"sparse", false},
                         {"ragged", false},
                         {"name", names_.of_call(call)},
                         {"optional", false}});
    }
    const Layer& made = *model_.layers()[entry.layer];
    OrderedJson config = {{"name", names_.of_call(call)},
                          {"trainable", made.trainable},
                          {"dtype", policy(dtype_policy_name({made.dtype, made.variable_dtype}))}};
    for (const auto& [spec, value] : keras_args(object, Category::kLayer, true)) {
      if (!config.contains(spec->name)) {
        config[spec->name] = json(*value, *spec);
      }
    }
    if (object.class_name.starts_with("SpatialDropout")) {
      config.erase("trainable");  // their constructors do not take it
    }
    if (object.class_name == "Discretization") {
      config.erase("trainable");
      config.erase("activity_regularizer");
    }
    if (object.has("rotary")) {
      refuse_export(owner_, "`rotary`");
    }
    add_dtype(config);
    return serialized_layer(object.class_name, std::move(config));
  }

  // Layers within a layer compute in its dtype; cells of a stack have names.
  static void add_dtype(OrderedJson& config) {
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

  OrderedJson json(const ConfigValue& value, const Spec& spec) {
    if (value.is_object()) {
      return spec.kind == ValueKind::kActivation ? activation(value.object())
                                                 : object(value.object(), spec.category);
    }
    if (value.is_null()) {
      return nullptr;
    }
    if (value.is_bool()) {
      return value.boolean();
    }
    if (value.is_int()) {
      return value.integer();
    }
    if (value.is_number()) {
      return value.number();
    }
    if (value.is_string()) {
      return value.string();
    }
    OrderedJson out = value.is_list() ? OrderedJson::array() : OrderedJson::object();
    if (value.is_list()) {
      for (const ConfigValue& entry : value.list()) {
        out.push_back(json(entry, spec));
      }
    } else {
      for (const auto& [key, entry] : value.dict()) {
        out[key] = json(entry, spec);
      }
    }
    return out;
  }

  OrderedJson object(const ConfigObject& object, Category category) {
    OrderedJson config = OrderedJson::object();
    for (const auto& [spec, value] : keras_args(object, category, false)) {
      config[spec->name] = json(*value, *spec);
    }
    if (category == Category::kOptimizer && !config.contains("name")) {
      config["name"] = to_snake_case(object.class_name);
    }
    return serialized(keras_module(category), object.class_name, std::move(config));
  }

  // A function with arguments is a layer in Keras' JSON, where there is one.
  OrderedJson activation(const ConfigObject& object) {
    if (keras_args(object, Category::kActivation, false).empty()) {
      return object.class_name;
    }
    for (const char* layer : {"ReLU", "LeakyReLU", "ELU", "Softmax"}) {
      if (name_key(layer) != name_key(object.class_name)) {
        continue;
      }
      OrderedJson config = OrderedJson::object();
      for (const auto& [spec, value] : keras_args(object, Category::kActivation, true)) {
        config[spec->name] = json(*value, *spec);
      }
      return serialized("keras.layers", layer, std::move(config));
    }
    refuse_activation(object);
  }

  // As an operation of a functional model it can be said: a Lambda is written as one.
  [[noreturn]] void refuse_activation(const ConfigObject& object) const {
    ConfigError error("E417", {},
                      fmt::format("{}: the activation `{}` with arguments cannot be said in Keras",
                                  owner_, object.class_name));
    if (find_operation(object.class_name) != nullptr) {
      std::vector<std::string> arguments = {"x"};
      for (const auto& [spec, value] : keras_args(object, Category::kActivation, false)) {
        const std::string text = value->is_bool() ? (value->boolean() ? "True" : "False")
                                                  : format_shortest(value->number());
        arguments.push_back(fmt::format("{}={}", spec->name, text));
      }
      error.help(fmt::format("a layer of its own can: `Lambda: ={}({})`", object.class_name,
                             join(arguments, ", ")));
    }
    throw error;
  }

  // --- compile ---------------------------------------------------------------------------------

  OrderedJson named_or_object(const ConfigObject& object, Category category) {
    const std::string name = bare_name(object, category);
    return name.empty() ? this->object(object, category) : OrderedJson(name);
  }

  // One object for a single output, else a map by output; what is for all is for each.
  OrderedJson per_output(const std::vector<OutputObject>& entries, Category category,
                         bool as_lists) {
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
      }
    }
    return out;
  }

  OrderedJson compile_config() {
    const CompileConfig& compile = config_.compile;
    owner_ = "compile";
    OrderedJson weights;
    for (const auto& [output, weight] : keras_loss_weights(compile, model_, names_)) {
      weights[output] = weight;
    }
    if (weights.size() == 1 && model_.outputs().size() == 1) {
      weights = OrderedJson::array({weights.front()});
    }
    return {{"optimizer", object(compile.optimizer, Category::kOptimizer)},
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
  std::map<int, int> calls_of_layer_;
  std::vector<int> nodes_;  // of each call: which call of its layer it is
  std::string owner_;       // for messages
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
