#include "interop/keras/import_ops.h"

#include <fmt/format.h>

#include "base/text.h"
#include "interop/keras/import_values.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

Json layer(const char* class_name, const Json& name, Json config) {
  config["name"] = name;
  return {{"class_name", class_name}, {"config", std::move(config)}};
}

// x op number or number op x, as x scale + offset.
std::optional<Json> with_number(const std::string& op, const Json& name, double value,
                                bool number_first) {
  const auto rescaling = [&](double scale, double offset) {
    return layer("Rescaling", name, {{"scale", scale}, {"offset", offset}});
  };
  if (op == "Add") {
    return rescaling(1, value);
  }
  if (op == "Multiply") {
    return rescaling(value, 0);
  }
  if (op == "Subtract") {
    return number_first ? rescaling(-1, value) : rescaling(1, -value);
  }
  if ((op == "TrueDivide" || op == "Divide") && !number_first && value != 0) {
    return rescaling(1 / value, 0);
  }
  return std::nullopt;
}

}  // namespace

bool is_operation(const Json& layer) {
  const auto module = layer.find("module");
  return module != layer.end() && module->is_string() &&
         (starts_with(module->get<std::string>(), "keras.src.ops") ||
          starts_with(module->get<std::string>(), "keras.ops"));
}

std::optional<Json> layer_of_operation(const Json& operation, const std::vector<Json>& arguments,
                                       size_t tensors, std::string& problem) {
  const std::string op = operation.at("class_name").get<std::string>();
  const Json& config = operation.at("config");
  const Json name = config.value("name", to_snake_case(op));
  problem = "is an operation that is no layer of meshtrain";
  for (const char* merge : {"Add", "Subtract", "Multiply", "Maximum", "Minimum"}) {
    if (op == merge && tensors == 2 && arguments.size() == 2) {
      return layer(merge, name, Json::object());
    }
  }
  if (tensors == 1 && arguments.size() == 2) {
    const bool number_first = arguments[0].is_number();
    const Json& other = arguments[number_first ? 0 : 1];
    return other.is_number() ? with_number(op, name, other.get<double>(), number_first)
                             : std::nullopt;
  }
  if (tensors != 1 || arguments.size() != 1) {
    return std::nullopt;
  }
  const ClassSpec* activation = find_activation(op);
  if (activation == nullptr) {
    return std::nullopt;
  }
  Json function = Json::object();
  for (const auto& [key, value] : config.items()) {
    if (key != "name" && !value.is_null()) {
      function[key] = value;
    }
  }
  return layer("Activation", name,
               {{"activation", {{"class_name", activation->name}, {"config", function}}}});
}

}  // namespace meshtrain
