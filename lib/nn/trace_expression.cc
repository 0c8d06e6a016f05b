// Tracing: the text of an expression becomes the calls of a TensorProgram.
#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"
#include "config/spec.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

using Kind = ExprNode::Kind;

constexpr size_t kMaxCalls = 1000;

Operand constant_operand(ExprValue value) {
  return {.constant = std::move(value)};
}

// What other frameworks call operations.
constexpr std::pair<std::string_view, std::string_view> kOtherOperations[] = {
    {"cat", "concatenate"},  {"permute", "transpose"},
    {"view", "reshape"},     {"unsqueeze", "expand_dims"},
    {"mm", "matmul"},        {"bmm", "matmul"},
    {"pow", "power"},        {"clamp", "clip"},
    {"reduce_mean", "mean"}, {"reduce_sum", "sum"},
    {"reduce_max", "max"}};

// Python's operators that expressions lack.
constexpr std::pair<std::string_view, std::string_view> kOtherOperators[] = {
    {"@", "matmul(a, b)"},
    {"&", "logical_and(a, b)"},
    {"|", "logical_or(a, b)"},
    {"~", "logical_not(a)"},
    {"and ", "logical_and(a, b)"},
    {"or ", "logical_or(a, b)"},
    {"^", "logical_xor(a, b), or a ** b for a power"}};

// parse_expression(); the help of an operator that is none here names the operation.
ExprNode parse_operations(std::string_view text) {
  try {
    return parse_expression(text);
  } catch (ExprError& error) {
    for (const auto& [sign, operation] : kOtherOperators) {
      if (error.offset < text.size() && text.substr(error.offset).starts_with(sign)) {
        error.help = fmt::format("write {}", operation);
      }
    }
    throw;
  }
}

// Refuses `cat(...)`, `x.mean(1)` and `torch.relu(x)` with the name here.
void refuse_other_name(const ExprNode& node) {
  const size_t dot = node.text.rfind('.');
  const std::string name = node.text.substr(dot == std::string::npos ? 0 : dot + 1);
  const auto* const other = std::find_if(std::begin(kOtherOperations), std::end(kOtherOperations),
                                         [&](const auto& entry) { return entry.first == name; });
  const std::string own = other != std::end(kOtherOperations) ? std::string(other->second) : name;
  if (find_operation(node.text) == nullptr && own != node.text && find_operation(own) != nullptr) {
    throw ExprError{node.offset,
                    fmt::format("there is no function `{}`", node.text),
                    {},
                    fmt::format("write `{}(x, ...)`: {}", own,
                                dot == std::string::npos ? "names are those of keras.ops"
                                                         : "tensors have no methods here, and "
                                                           "functions no module")};
  }
}

class Tracer {
 public:
  Tracer(TensorProgram& out, const TensorNames& names) : out_(out), names_(names) {}

  Operand trace(const ExprNode& node) {
    switch (node.kind) {
      case Kind::kConstant:
        return constant_operand(node.value);
      case Kind::kName:
        return name(node);
      case Kind::kOperator:
        return operation(node);
      case Kind::kCall:
        return call(node);
      case Kind::kIndex:
        return index(node);
      case Kind::kList:
        return list(node);
      case Kind::kConditional:
        return conditional(node);
      default:
        throw ExprError{
            node.offset, "a slice stands between the brackets of an index only", {}, {}};
    }
  }

 private:
  Operand name(const ExprNode& node) {
    if (const auto tensor = names_.tensors.find(node.text); tensor != names_.tensors.end()) {
      return {.tensor = tensor->second};
    }
    if (const auto known = names_.constants.find(node.text); known != names_.constants.end()) {
      return constant_operand(known->second);
    }
    if (node.text == "None" || node.text == "null") {
      return {};
    }
    if (node.text == "True" || node.text == "False") {
      return constant_operand({node.text == "True"});
    }
    if (node.text == "pi") {
      return constant_operand({3.14159265358979323846});
    }
    std::vector<std::string> known;
    for (const auto& [name, value] : names_.tensors) {
      known.push_back(name);
    }
    for (const auto& [name, value] : names_.constants) {
      known.push_back(name);
    }
    const auto nearest = nearest_name(node.text, known);
    throw ExprError{node.offset,
                    fmt::format("there is no `{}`", node.text),
                    {},
                    nearest ? fmt::format("did you mean `{}`?", *nearest) : names_.help};
  }

  static bool has_tensor(const Operand& operand) {
    return operand.is_tensor() || std::any_of(operand.list.begin(), operand.list.end(), has_tensor);
  }

  // A list without tensors is a constant.
  Operand list(const ExprNode& node) {
    Operand out{.is_list = true};
    std::vector<ExprValue> constants;
    for (const ExprNode& child : node.children) {
      out.list.push_back(trace(child));
      constants.push_back(out.list.back().constant);
    }
    return has_tensor(out) ? out : constant_operand(ExprValue{std::move(constants)});
  }

  Operand operation(const ExprNode& node) {
    std::vector<Operand> operands;
    for (const ExprNode& child : node.children) {
      operands.push_back(trace(child));
    }
    if (std::any_of(operands.begin(), operands.end(), has_tensor)) {
      const Operation& applied = operation_of_operator(node.text, operands.size());
      return add(applied, std::move(operands), {}, node.offset);
    }
    const ExprValue zero{int64_t{0}};
    const ExprValue& first = operands.size() == 1 ? zero : operands[0].constant;
    return of_constants(node,
                        [&] { return apply_operator(node.text, first, operands.back().constant); });
  }

  template <class F>
  static Operand of_constants(const ExprNode& node, F&& function) {
    try {
      return constant_operand(function());
    } catch (ExprError& error) {
      error.offset = node.offset;
      throw;
    }
  }

  Operand conditional(const ExprNode& node) {
    const Operand condition = trace(node.children[1]);
    const bool* holds = std::get_if<bool>(&condition.constant.data);
    if (holds == nullptr) {
      throw ExprError{node.offset,
                      "`if` chooses by a constant, not by the elements of a tensor",
                      {},
                      "write where(condition, a, b)"};
    }
    return trace(node.children[*holds ? 0 : 2]);
  }

  ExprValue constant_part(const ExprNode& node, const char* what) {
    Operand operand = node.kind == Kind::kNothing ? Operand{} : trace(node);
    if (has_tensor(operand)) {
      throw ExprError{node.offset, fmt::format("{} cannot depend on a tensor", what), {}, {}};
    }
    return std::move(operand.constant);
  }

  ExprValue index_entry(const ExprNode& node) {
    if (node.kind == Kind::kEllipsis) {
      return ExprValue{std::string("...")};
    }
    if (node.kind != Kind::kSlice) {
      ExprValue value = constant_part(node, "an index");
      if (!std::holds_alternative<int64_t>(value.data) &&
          !std::holds_alternative<std::monostate>(value.data)) {
        throw ExprError{node.offset,
                        "an index must be an integer, a slice, null or `...`",
                        {},
                        "take(x, [0, 2], axis=1) selects several"};
      }
      return value;
    }
    std::vector<ExprValue> parts;
    for (const ExprNode& part : node.children) {
      parts.push_back(constant_part(part, "a slice"));
      if (!std::holds_alternative<int64_t>(parts.back().data) &&
          !std::holds_alternative<std::monostate>(parts.back().data)) {
        throw ExprError{part.offset, "a slice is of integers", {}, {}};
      }
    }
    return ExprValue{std::move(parts)};
  }

  // `split(x, 3)[0]`: the part of the list that the index of a call names.
  std::optional<int64_t> part_of_list(const ExprNode& node) {
    const ExprNode& indexed = node.children[0];
    const Operation* operation =
        indexed.kind == Kind::kCall ? find_operation(indexed.text) : nullptr;
    if (operation == nullptr || !operation->gives_list || node.children.size() != 2) {
      return std::nullopt;
    }
    const ExprValue entry = index_entry(node.children[1]);
    const auto* part = std::get_if<int64_t>(&entry.data);
    return part == nullptr ? std::nullopt : std::optional(*part);
  }

  Operand index(const ExprNode& node) {
    if (const std::optional<int64_t> part = part_of_list(node)) {
      return call(node.children[0], part);
    }
    const Operand indexed = trace(node.children[0]);
    std::vector<ExprValue> key;
    for (size_t i = 1; i < node.children.size(); ++i) {
      key.push_back(index_entry(node.children[i]));
    }
    if (indexed.is_list && key.size() == 1 && std::holds_alternative<int64_t>(key[0].data)) {
      const int64_t at = std::get<int64_t>(key[0].data);
      const auto size = static_cast<int64_t>(indexed.list.size());
      if (at >= -size && at < size) {
        return indexed.list[static_cast<size_t>(at < 0 ? at + size : at)];
      }
    }
    if (!indexed.is_tensor()) {
      return of_constants(node, [&] { return element_of(indexed.constant, key[0]); });
    }
    return add(*find_operation("get_item"), {indexed}, {{"key", ExprValue{std::move(key)}}},
               node.offset);
  }

  Operand call(const ExprNode& node, std::optional<int64_t> part = {}) {
    std::vector<Operand> given;
    bool of_tensors = false, has_keyword = false;
    for (size_t i = 0; i < node.children.size(); ++i) {
      given.push_back(trace(node.children[i]));
      of_tensors = of_tensors || has_tensor(given.back());
      has_keyword = has_keyword || !node.keywords[i].empty();
    }
    const Operation* operation = find_operation(node.text);
    refuse_other_name(node);
    if (!of_tensors && !has_keyword) {
      std::vector<ExprValue> constants;
      for (const Operand& operand : given) {
        constants.push_back(operand.constant);
      }
      return of_constants(node, [&] { return call_function(node.text, constants); });
    }
    if (operation == nullptr) {
      const auto nearest = nearest_name(node.text, operation_names());
      throw ExprError{node.offset,
                      fmt::format("there is no function `{}` of tensors", node.text),
                      {},
                      nearest ? fmt::format("did you mean `{}`?", *nearest)
                              : "functions are those of keras.ops that configs/KERAS.md lists"};
    }
    if (operation->gives_list && !part) {
      throw ExprError{node.offset,
                      fmt::format("{} gives a list of tensors", operation->name),
                      {},
                      fmt::format("take one of them: {}(...)[0]", operation->name)};
    }
    Operand out = bind(*operation, node, std::move(given));
    out_.calls.back().part = part.value_or(0);
    return out;
  }

  // Python's rules: first by place, then by name.
  Operand bind(const Operation& operation, const ExprNode& node, std::vector<Operand> given) {
    const std::vector<Operation::Parameter> operand_parameters = operation.operand_parameters();
    const std::vector<Operation::Parameter> parameters = operation.parameters();
    std::vector<std::string> order;  // of what is given by place
    for (const auto& parameter : operand_parameters) {
      if (!operation.takes_any_number()) {
        order.push_back(parameter.name);
      }
    }
    for (const auto& parameter : parameters) {
      order.push_back(parameter.name);
    }
    std::map<std::string, Operand, std::less<>> bound;
    std::vector<Operand> operands;
    bool had_keyword = false;
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string& keyword = node.keywords[i];
      const size_t place = node.children[i].offset;
      had_keyword = had_keyword || !keyword.empty();
      if (keyword.empty() && had_keyword) {
        throw ExprError{place, "an argument by place follows one by name", {}, {}};
      }
      if (keyword.empty() && i >= order.size() && operation.takes_any_number()) {
        operands.push_back(std::move(given[i]));
        continue;
      }
      if (keyword.empty() && i >= order.size()) {
        throw ExprError{place,
                        fmt::format("{} takes {} arguments at most", operation.name, order.size()),
                        {},
                        signature_help(operation)};
      }
      const std::string& name = keyword.empty() ? order[i] : keyword;
      if (std::find(order.begin(), order.end(), name) == order.end()) {
        throw ExprError{place,
                        fmt::format("{} has no argument `{}`", operation.name, name),
                        {},
                        signature_help(operation)};
      }
      if (keyword.empty() && (operation.name == "max" || operation.name == "min") && i == 1) {
        throw ExprError{
            place,
            fmt::format("the second argument of {} is the axis, which is named here",
                        operation.name),
            {},
            fmt::format("write {0}(x, axis=...), or {0}imum(a, b) of two tensors", operation.name)};
      }
      if (!bound.emplace(name, std::move(given[i])).second) {
        throw ExprError{place, fmt::format("`{}` is given twice", name), {}, {}};
      }
    }
    const auto value_of = [&](const Operation::Parameter& parameter) {
      const auto found = bound.find(parameter.name);
      if (found != bound.end()) {
        return found->second;
      }
      if (parameter.is_required) {
        throw ExprError{node.offset,
                        fmt::format("{} needs `{}`", operation.name, parameter.name),
                        {},
                        signature_help(operation)};
      }
      return constant_operand(parameter.otherwise);
    };
    for (const auto& parameter : operand_parameters) {
      if (!operation.takes_any_number()) {
        operands.push_back(value_of(parameter));
      }
    }
    OperationArguments arguments;
    for (const auto& parameter : parameters) {
      const Operand value = value_of(parameter);
      if (has_tensor(value)) {
        throw ExprError{
            node.offset,
            fmt::format("`{}` of {} cannot be a tensor", parameter.name, operation.name),
            {},
            signature_help(operation)};
      }
      arguments[parameter.name] = value.constant;
    }
    return add(operation, std::move(operands), std::move(arguments), node.offset);
  }

  static std::string signature_help(const Operation& operation) {
    std::string parts(operation.operands);
    parts += operation.arguments.empty() ? "" : ", " + std::string(operation.arguments);
    if (operation.takes_any_number()) {
      parts = fmt::format("{}, {}", operation.arguments, operation.operands);
    }
    return fmt::format("it is {}({})", operation.name, parts);
  }

  Operand add(const Operation& operation, std::vector<Operand> operands,
              OperationArguments arguments, size_t offset) {
    if (out_.calls.size() >= kMaxCalls) {
      throw ExprError{offset,
                      fmt::format("more than {} operations in one expression", kMaxCalls),
                      {},
                      "split it over several layers"};
    }
    out_.calls.push_back({&operation, std::move(operands), std::move(arguments), offset, 0});
    return {.tensor = static_cast<int>(out_.inputs.size() + out_.calls.size()) - 1};
  }

  TensorProgram& out_;
  const TensorNames& names_;
};

// Tensors of the program as values of the graph.

}  // namespace

TensorProgram trace_expression(std::string_view text, std::vector<std::string> inputs,
                               const TensorNames& names) {
  TensorProgram out;
  out.inputs = std::move(inputs);
  const ExprNode node = parse_operations(text);
  const Operand result = Tracer(out, names).trace(node);
  if (!result.is_tensor()) {
    throw ExprError{node.offset, "the expression gives no tensor", {}, names.help};
  }
  out.result = result.tensor;
  return out;
}

}  // namespace meshtrain
