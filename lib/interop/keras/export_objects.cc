#include "interop/keras/export_objects.h"

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

// As an operation of a functional model it can be said: a Lambda is written as one.
[[noreturn]] void refuse_activation(const ConfigObject& object, const std::string& owner) {
  ConfigError error(
      "E417", {},
      fmt::format("{}: the activation `{}` with arguments cannot be expressed in Keras", owner,
                  object.class_name));
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

// A function with arguments is a layer in Keras' JSON, where there is one.
OrderedJson activation_json(const ConfigObject& object, const std::string& owner) {
  if (keras_args(object, Category::kActivation, false).empty()) {
    return object.class_name;
  }
  for (const char* layer : {"ReLU", "LeakyReLU", "ELU", "Softmax"}) {
    if (name_key(layer) != name_key(object.class_name)) {
      continue;
    }
    OrderedJson config = OrderedJson::object();
    for (const auto& [spec, value] : keras_args(object, Category::kActivation, true)) {
      config[spec->name] = value_json(*value, *spec, owner);
    }
    return serialized("keras.layers", layer, std::move(config));
  }
  refuse_activation(object, owner);
}

}  // namespace

OrderedJson serialized(const std::string& module, const std::string& class_name,
                       OrderedJson config) {
  return {{"module", module},
          {"class_name", class_name},
          {"config", std::move(config)},
          {"registered_name", nullptr}};
}

std::string module_of_layer(std::string_view class_name) {
  // Classes that Keras and Keras Hub have without giving them a public name.
  static constexpr std::pair<const char*, const char*> kUnnamed[] = {
      {"LayerScale", "keras.src.applications.convnext"},
      {"StochasticDepth", "keras.src.applications.convnext"},
      {"CustomScaleLayer", "keras.src.applications.inception_resnet_v2"},
      {"ViTPatchingAndEmbedding", "keras_hub.src.models.vit.vit_layers"}};
  for (const auto& [name, module] : kUnnamed) {
    if (class_name == name) {
      return module;
    }
  }
  return is_of_hub(class_name) ? "keras_hub.layers" : "keras.layers";
}

OrderedJson serialized_layer(const std::string& class_name, OrderedJson config) {
  const std::string module = module_of_layer(class_name);
  OrderedJson out = serialized(module, class_name, std::move(config));
  if (module == "keras_hub.layers") {
    out["registered_name"] = "keras_hub>" + class_name;
  } else if (module != "keras.layers") {
    out["registered_name"] = class_name;
  }
  return out;
}

OrderedJson policy_json(const std::string& name) {
  return serialized("keras", "DTypePolicy", {{"name", name}});
}

OrderedJson shape_json(const Shape& shape) {
  OrderedJson out = OrderedJson::array();
  for (const int64_t size : shape) {
    out.push_back(size == kUnknownDim ? OrderedJson() : OrderedJson(size));
  }
  return out;
}

OrderedJson value_json(const ConfigValue& value, const Spec& spec, const std::string& owner) {
  if (value.is_object()) {
    return spec.kind == ValueKind::kActivation ? activation_json(value.object(), owner)
                                               : object_json(value.object(), spec.category, owner);
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
      out.push_back(value_json(entry, spec, owner));
    }
  } else {
    for (const auto& [key, entry] : value.dict()) {
      out[key] = value_json(entry, spec, owner);
    }
  }
  return out;
}

OrderedJson object_json(const ConfigObject& object, Category category, const std::string& owner) {
  OrderedJson config = OrderedJson::object();
  for (const auto& [spec, value] : keras_args(object, category, false)) {
    OrderedJson json = value_json(*value, *spec, owner);
    config[spec->name] =
        spec->is_always_list && json.is_number() ? OrderedJson::array({json}) : json;
  }
  if (object.class_name == "MultiOptimizer") {  // Keras has a class for its map
    OrderedJson members = {{"default_optimizer", config["default_optimizer"]},
                           {"optimizer_map", config["optimizer_map"]}};
    config.erase("default_optimizer");
    config["optimizer_map"] =
        serialized(keras_module(category), "OptimizerMap", std::move(members));
  }
  if (category == Category::kOptimizer && !config.contains("name")) {
    config["name"] = to_snake_case(object.class_name);
  }
  return serialized(keras_module(category), object.class_name, std::move(config));
}

}  // namespace meshtrain
