#include "interop/keras/import_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "base/text.h"
#include "interop/keras/import_values.h"
#include "nn/expression_text.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

// What cannot be an expression; becomes the problem.
struct NotHere {
  std::string what;
};

Json layer(const char* class_name, const Json& name, Json config) {
  config["name"] = name;
  return {{"class_name", class_name}, {"config", std::move(config)}};
}

bool is_tensor(const Json& value) {
  return value.is_object() && value.value("class_name", Json()) == "__keras_tensor__";
}

ExprValue constant_of(const Json& value);

ExprValue list_of(const Json& values) {
  std::vector<ExprValue> out;
  for (const Json& entry : values) {
    out.push_back(constant_of(entry));
  }
  return ExprValue{std::move(out)};
}

// A number, text, list, or what Keras wraps: slices as [start, stop, step].
ExprValue constant_of(const Json& value) {
  if (value.is_null()) {
    return {};
  }
  if (value.is_boolean()) {
    return {value.get<bool>()};
  }
  if (value.is_number_integer()) {
    return {value.get<int64_t>()};
  }
  if (value.is_number()) {
    return {value.get<double>()};
  }
  if (value.is_string()) {
    return {value.get<std::string>()};
  }
  if (value.is_array()) {
    return list_of(value);
  }
  const std::string kind = value.value("class_name", std::string());
  const Json config = value.value("config", Json::object());
  if (kind == "__ellipsis__") {
    return {std::string("...")};
  }
  if (kind == "__slice__") {
    return list_of(Json{config.value("start", Json()), config.value("stop", Json()),
                        config.value("step", Json())});
  }
  if (kind == "__tuple__") {
    return list_of(value.value("items", Json::array()));
  }
  if (kind == "__numpy__" || kind == "__tensor__") {
    return constant_of(config.value("value", Json()));
  }
  if (kind == "__keras_tensor__") {
    throw NotHere{
        "takes a tensor where numbers must stand; `take_along_axis`, or a product with `one_hot`, "
        "takes rows by number"};
  }
  throw NotHere{fmt::format("takes {}, which is no number", printable(value.dump()))};
}

// The next operand; tensors count up.
Operand operand_of(const Json& value, int& tensors) {
  if (is_tensor(value)) {
    return {.tensor = tensors++};
  }
  const bool has_tensor = value.is_array() && std::any_of(value.begin(), value.end(), is_tensor);
  if (!has_tensor) {
    return {.constant = constant_of(value)};
  }
  Operand out{.is_list = true};
  for (const Json& entry : value) {
    out.list.push_back(operand_of(entry, tensors));
  }
  return out;
}

// An index alone is an index of one; sizes that are null are to be worked out.
ExprValue as_argument(const std::string& name, ExprValue value) {
  auto* list = std::get_if<std::vector<ExprValue>>(&value.data);
  if (name == "newshape" && list != nullptr) {
    for (ExprValue& entry : *list) {
      entry = std::holds_alternative<std::monostate>(entry.data) ? ExprValue{int64_t{-1}} : entry;
    }
  }
  return value;
}

ExprValue key_of(const Json& json) {
  ExprValue value = constant_of(json);
  const bool is_tuple = json.is_object() && json.value("class_name", Json()) == "__tuple__";
  return json.is_array() || is_tuple ? value : ExprValue{std::vector{std::move(value)}};
}

// Whether an argument that no operation here has changes nothing.
bool changes_nothing(const std::string& key, const Json& value) {
  return key == "name" || value.is_null() || value == false || (key == "sorted" && value == true) ||
         (key == "dtype" && value == "float32");
}

TensorProgram::Call call_of(const Operation& operation, const Json& config, const Json& args,
                            const Json& kwargs, int& tensors) {
  TensorProgram::Call out{.operation = &operation};
  std::vector<std::string> call_arguments;
  for (const auto& parameter : operation.parameters()) {
    out.arguments[parameter.name] = parameter.otherwise;
    if (operation.is_call_argument(parameter.name)) {
      call_arguments.push_back(parameter.name);
    }
  }
  const std::vector<Operation::Parameter> named = operation.operand_parameters();
  const size_t operands = operation.takes_any_number() ? args.size() : named.size();
  if (args.size() > operands + call_arguments.size()) {
    throw NotHere{"is called with other arguments than here"};
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (i < operands) {
      out.operands.push_back(operand_of(args[i], tensors));
    } else {
      const std::string& name = call_arguments[i - operands];
      out.arguments[name] = name == "key" ? key_of(args[i]) : constant_of(args[i]);
    }
  }
  for (size_t i = out.operands.size(); i < operands; ++i) {
    const auto given = kwargs.find(named[i].name);
    if (given == kwargs.end() && named[i].is_required) {
      throw NotHere{"is called with other arguments than here"};
    }
    out.operands.push_back(given == kwargs.end() ? Operand{.constant = named[i].otherwise}
                                                 : operand_of(*given, tensors));
  }
  const auto is_operand = [&](const std::string& key) {
    return std::any_of(named.begin(), named.end(),
                       [&](const Operation::Parameter& one) { return one.name == key; });
  };
  for (const Json* given : {&config, &kwargs}) {
    for (const auto& [key, value] : given->items()) {
      if (given == &kwargs && is_operand(key)) {
        continue;
      }
      if (out.arguments.contains(key)) {
        out.arguments[key] = as_argument(key, constant_of(value));
      } else if (!changes_nothing(key, value)) {
        throw NotHere{fmt::format("has `{}: {}`, which is not in meshtrain", printable(key),
                                  printable(value.dump()))};
      }
    }
  }
  return out;
}

// An activation function as a layer; nothing where an expression is as good or better: one with
// arguments comes back from there as the operation, and of glu Keras' Activation tells a wrong
// shape.
std::optional<Json> activation_of(const std::string& op, const Json& config, const Json& name,
                                  bool has_expression) {
  const ClassSpec* activation = find_activation(op);
  if (activation == nullptr || (has_expression && activation->name == "glu")) {
    return std::nullopt;
  }
  Json function = Json::object();
  for (const auto& [key, value] : config.items()) {
    const Spec* arg = activation->find(key);
    if (key != "name" && !value.is_null() &&
        (arg == nullptr || value.dump() != arg->default_text)) {
      function[key] = value;
    }
  }
  if (has_expression && !function.empty()) {
    return std::nullopt;
  }
  return layer("Activation", name,
               {{"activation", {{"class_name", activation->name}, {"config", function}}}});
}

// The sizes of a list, -1 for those that are open; nothing where it has others.
std::optional<std::vector<int64_t>> sizes_of(const Json& list) {
  const Json& sizes = list.is_object() && list.contains("items") ? list.at("items") : list;
  if (!sizes.is_array()) {
    return std::nullopt;
  }
  std::vector<int64_t> out;
  for (const Json& size : sizes) {
    if (!size.is_null() && !size.is_number_integer()) {
      return std::nullopt;
    }
    out.push_back(size.is_null() ? -1 : size.get<int64_t>());
  }
  return out;
}

// A reshape that moves the steps (batch, steps, ...) into the batch, or takes them out of it.
std::optional<Json> merged_steps_of(const Json& tensor, const Json& config, const Json& name) {
  const auto from = sizes_of(tensor.value("config", Json::object()).value("shape", Json()));
  const auto to = sizes_of(config.value("newshape", Json()));
  if (!from || !to || from->size() < 2 || to->size() < 2 || (*from)[0] != -1 || (*to)[0] != -1) {
    return std::nullopt;
  }
  const auto is_behind_steps = [](const std::vector<int64_t>& few,
                                  const std::vector<int64_t>& more) {
    return more.size() == few.size() + 1 && more[1] > 1 &&
           std::equal(few.begin() + 1, few.end(), more.begin() + 2);
  };
  if (is_behind_steps(*to, *from)) {
    return layer("MergeSteps", name, Json::object());
  }
  if (is_behind_steps(*from, *to)) {
    return layer("SplitSteps", name, {{"steps", (*to)[1]}});
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

std::optional<Json> layer_of_operation(const Json& operation, const Json& args, const Json& kwargs,
                                       const std::vector<std::string>& names, size_t part,
                                       std::string& problem) {
  const std::string op = operation.at("class_name").get<std::string>();
  const Json& config = operation.at("config");
  const Json name = config.value("name", to_snake_case(op));
  const Operation* const known = find_operation_class(op);
  if (part > 0 && (known == nullptr || !known->gives_list)) {
    problem = fmt::format("has no output {}", part);
    return std::nullopt;
  }
  if (args.size() == 1 && is_tensor(args[0])) {
    if (auto activation = activation_of(op, config, name, known != nullptr)) {
      return activation;
    }
  }
  if (op == "Reshape" && args.size() == 1 && is_tensor(args[0])) {
    if (auto steps = merged_steps_of(args[0], config, name)) {
      return steps;
    }
  }
  if (known == nullptr) {
    problem = op == "Slice" ? "is not in meshtrain; an index does the same: `x[:, 2:5]`"
                            : "is an operation that is not in meshtrain; those of expressions, in "
                              "configs/KERAS.md, can stand in its place";
    return std::nullopt;
  }
  try {
    int tensors = 0;
    TensorProgram::Call call = call_of(*known, config, args, kwargs, tensors);
    call.part = static_cast<int64_t>(part);
    if (tensors != std::ssize(names)) {
      throw NotHere{"is called with other arguments than here"};
    }
    return layer("Lambda", name, {{"function", "=" + call_text(call, names)}});
  } catch (const NotHere& reason) {
    problem = reason.what;
    return std::nullopt;
  }
}

}  // namespace meshtrain
