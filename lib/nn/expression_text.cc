#include "nn/expression_text.h"

#include "base/text.h"

namespace meshtrain {
namespace {

std::string operator_of(const Operation& operation) {
  for (const char* op : {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">="}) {
    if (&operation_of_operator(op, 2) == &operation) {
      return op;
    }
  }
  return "";
}

// Python's lists are no tensors: with a prefix a table of numbers is made one.
std::string operand_text(const Operand& operand, const std::vector<std::string>& names,
                         std::string_view prefix) {
  if (operand.is_tensor()) {
    return names[static_cast<size_t>(operand.tensor)];
  }
  if (!operand.is_list) {
    const std::string text = constant_text(operand.constant);
    const bool is_table = std::holds_alternative<std::vector<ExprValue>>(operand.constant.data);
    return is_table && !prefix.empty() ? fmt::format("{}convert_to_tensor({})", prefix, text)
                                       : text;
  }
  std::vector<std::string> parts;
  for (const Operand& entry : operand.list) {
    parts.push_back(operand_text(entry, names, prefix));
  }
  return "[" + join(parts, ", ") + "]";
}

// An argument; in Python a list is a tuple, because Keras takes no other for static arguments.
std::string argument_text(const ExprValue& value, bool is_python) {
  const auto* list = std::get_if<std::vector<ExprValue>>(&value.data);
  if (list == nullptr || !is_python) {
    return constant_text(value);
  }
  std::string out = "(";
  for (const ExprValue& entry : *list) {
    out +=
        argument_text(entry, is_python) + (&entry == &list->back() && list->size() > 1 ? "" : ", ");
  }
  return out + ")";
}

std::string index_text(const ExprValue& key) {
  std::vector<std::string> entries;
  for (const ExprValue& entry : std::get<std::vector<ExprValue>>(key.data)) {
    const auto* slice = std::get_if<std::vector<ExprValue>>(&entry.data);
    const auto* text = std::get_if<std::string>(&entry.data);
    if (slice == nullptr) {
      entries.push_back(text != nullptr ? *text : constant_text(entry));
      continue;
    }
    const auto part = [&](size_t i) {
      const bool is_given = std::holds_alternative<int64_t>((*slice)[i].data);
      return is_given ? constant_text((*slice)[i]) : std::string();
    };
    const std::string step = part(2);
    entries.push_back(part(0) + ":" + part(1) + (step.empty() ? "" : ":" + step));
  }
  return join(entries, ", ");
}

// A negative number before `**` would be the sign of the power.
std::string in_operator(const Operand& operand, const std::vector<std::string>& names,
                        std::string_view prefix) {
  std::string text = operand_text(operand, names, prefix);
  return !operand.is_tensor() && starts_with(text, "-") ? "(" + text + ")" : text;
}

}  // namespace

std::string constant_text(const ExprValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value.data)) {
    return *boolean ? "True" : "False";
  }
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    return "'" + *text + "'";
  }
  if (const auto* list = std::get_if<std::vector<ExprValue>>(&value.data)) {
    std::vector<std::string> parts;
    for (const ExprValue& entry : *list) {
      parts.push_back(constant_text(entry));
    }
    return "[" + join(parts, ", ") + "]";
  }
  const std::string text = expr_text(value);
  const bool is_whole =
      std::holds_alternative<double>(value.data) && text.find_first_of(".e") == std::string::npos;
  return text == "null" ? "None" : is_whole ? text + ".0" : text;
}

std::string call_text(const TensorProgram::Call& call, const std::vector<std::string>& names,
                      std::string_view prefix) {
  const Operation& operation = *call.operation;
  if (operation.name == "get_item") {
    return operand_text(call.operands[0], names, prefix) + "[" +
           index_text(call.arguments.at("key")) + "]";
  }
  if (operation.name == "negative") {
    return "-" + operand_text(call.operands[0], names, prefix);
  }
  if (const std::string op = operator_of(operation); !op.empty()) {
    return fmt::format("{} {} {}", in_operator(call.operands[0], names, prefix), op,
                       in_operator(call.operands[1], names, prefix));
  }
  std::vector<std::string> operands, arguments;
  const std::vector<Operation::Parameter> own = operation.operand_parameters();
  bool is_named = false;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const std::string text = operand_text(call.operands[i], names, prefix);
    const bool may_miss = !operation.takes_any_number() && !own[i].is_required;
    if (may_miss && text == constant_text(own[i].otherwise)) {
      is_named = true;  // those behind it are not at their place
    } else {
      operands.push_back(is_named ? own[i].name + "=" + text : text);
    }
  }
  for (const Operation::Parameter& parameter : operation.parameters()) {
    const ExprValue& value = call.arguments.at(parameter.name);
    if (parameter.is_required || constant_text(value) != constant_text(parameter.otherwise)) {
      const std::string text = argument_text(value, !prefix.empty());
      arguments.push_back(operation.takes_any_number() ? text : parameter.name + "=" + text);
    }
  }
  std::vector<std::string>& first = operation.takes_any_number() ? arguments : operands;
  std::vector<std::string>& last = operation.takes_any_number() ? operands : arguments;
  first.insert(first.end(), last.begin(), last.end());
  const std::string part = operation.gives_list ? fmt::format("[{}]", call.part) : "";
  const char* const module = prefix.empty() || operation.module != "image" ? "" : "image.";
  return fmt::format("{}{}{}({}){}", prefix, module, operation.name, join(first, ", "), part);
}

}  // namespace meshtrain
