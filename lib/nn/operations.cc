#include "nn/operations.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/scalars.h"
#include "config/tensor_expression.h"
#include "nn/graph_parts.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

constexpr int64_t kMaxConstants = 4096;  // numbers of one constant tensor

const std::vector<Operation>& all_operations() {
  static const std::vector<Operation> kAll = [] {
    std::vector<Operation> all;
    for (const auto family :
         {elementwise_operations, activation_operations, reduction_operations, shape_operations,
          joining_operations, product_operations, angle_operations, order_operations,
          window_operations, image_operations, network_operations, fourier_operations}) {
      const std::vector<Operation> part = family();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return kAll;
}

const std::vector<ExprValue>* as_list(const ExprValue& value) {
  return std::get_if<std::vector<ExprValue>>(&value.data);
}

std::optional<int64_t> as_integer(const ExprValue& value) {
  const auto* integer = std::get_if<int64_t>(&value.data);
  return integer == nullptr ? std::nullopt : std::optional(*integer);
}

// An integer that sums and differences with sizes keep from overflowing.
std::optional<int64_t> as_size(const ExprValue& value) {
  const auto integer = as_integer(value);
  return integer && *integer >= -kMaxElements && *integer <= kMaxElements ? integer : std::nullopt;
}

std::optional<double> as_number(const ExprValue& value) {
  if (const auto* number = std::get_if<double>(&value.data)) {
    return *number;
  }
  const auto integer = as_integer(value);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

// Kinds of constants, each of which the later ones can hold.
enum class Weak { kBool, kInt, kFloat };

// Numbers of a constant in order, its shape, and the widest kind.
struct Numbers {
  std::vector<double> values;
  Shape shape;
  Weak kind = Weak::kBool;
};

void collect(const ExprValue& value, size_t depth, Numbers& out) {
  if (const auto* list = as_list(value)) {
    const auto size = static_cast<int64_t>(list->size());
    if (size == 0 || depth >= out.shape.size() || out.shape[depth] != size) {
      operation_error(fmt::format("`{}` is no table of numbers", expr_text(value)));
    }
    for (const ExprValue& entry : *list) {
      collect(entry, depth + 1, out);
    }
    return;
  }
  const bool* boolean = std::get_if<bool>(&value.data);
  const std::optional<double> number = boolean != nullptr ? double(*boolean) : as_number(value);
  if (!number || depth != out.shape.size()) {
    operation_error(fmt::format("`{}` is no number", expr_text(value)),
                    "operands are tensors and numbers");
  }
  if (out.values.size() >= kMaxConstants) {
    operation_error(fmt::format("a constant has more than {} numbers", kMaxConstants));
  }
  out.kind = std::max(out.kind, boolean != nullptr  ? Weak::kBool
                                : as_integer(value) ? Weak::kInt
                                                    : Weak::kFloat);
  out.values.push_back(*number);
}

Numbers numbers_of_constant(const ExprValue& value) {
  Numbers out;
  // The depth of the first entries is that of all.
  for (const ExprValue* at = &value; as_list(*at) != nullptr && !as_list(*at)->empty();) {
    out.shape.push_back(static_cast<int64_t>(as_list(*at)->size()));
    at = as_list(*at)->data();
  }
  collect(value, 0, out);
  return out;
}

ValueId constant_tensor(Builder& b, const Numbers& numbers, DType dtype) {
  if (numbers.shape.empty()) {
    return b.constant(numbers.values[0], dtype);
  }
  return b.reshape(vector_of(b, numbers.values, dtype), numbers.shape);
}

// The wider of two dtypes, as NumPy and JAX promote them.
DType wider(DType a, DType b) {
  if (a == b) {
    return a;
  }
  if (is_floating(a) != is_floating(b)) {
    return is_floating(a) ? a : b;
  }
  if (is_floating(a)) {
    return dtype_size(a) == dtype_size(b) ? DType::kFloat32 : dtype_size(a) > dtype_size(b) ? a : b;
  }
  if (a == DType::kBool || b == DType::kBool) {
    return a == DType::kBool ? b : a;
  }
  return dtype_size(a) == dtype_size(b) ? DType::kInt64 : dtype_size(a) > dtype_size(b) ? a : b;
}

DType with_constant(DType dtype, Weak kind, DType floatx) {
  if (is_floating(dtype) || kind == Weak::kBool) {
    return dtype;
  }
  return kind == Weak::kFloat ? floatx : dtype == DType::kBool ? DType::kInt32 : dtype;
}

const ExprValue& argument_of(const OperationContext& context, std::string_view name) {
  const auto found = context.arguments.find(name);
  MESHTRAIN_CHECK(found != context.arguments.end(), "no argument {}", name);
  return found->second;
}

[[noreturn]] void wrong_argument(const OperationContext& context, std::string_view name,
                                 std::string_view must_be) {
  operation_error(fmt::format("`{}` must be {}, not `{}`", name, must_be,
                              expr_text(argument_of(context, name))));
}

ExprValue default_value(std::string_view text) {
  if (text == "None") {
    return {};
  }
  if (text == "True" || text == "False") {
    return ExprValue{text == "True"};
  }
  if (text.front() == '\'') {
    return ExprValue{std::string(text.substr(1, text.size() - 2))};
  }
  if (text.front() == '(') {
    return constant_of_text(text);
  }
  const auto integer = try_integer(text);
  return integer ? ExprValue{*integer} : ExprValue{*try_number(text)};
}

// "a, b=1, c=(2, 3)".
std::vector<Operation::Parameter> parameters_of(std::string_view text) {
  std::vector<Operation::Parameter> out;
  while (!text.empty()) {
    size_t end = 0;
    for (int depth = 0; end < text.size() && (depth > 0 || text[end] != ','); ++end) {
      depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
    }
    const std::string_view part = text.substr(0, end);
    const size_t equals = part.find('=');
    Operation::Parameter parameter{
        std::string(trim(part.substr(0, equals))), equals == std::string_view::npos, {}};
    if (!parameter.is_required) {
      parameter.otherwise = default_value(trim(part.substr(equals + 1)));
    }
    out.push_back(std::move(parameter));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

void operation_error(std::string message, std::string help) {
  throw ExprError{ExprError::kNoOffset, std::move(message), {}, std::move(help)};
}

void check_broadcast(const Builder& b, const std::vector<ValueId>& values) {
  Shape shape = b.shape(values[0]);
  for (const ValueId value : values) {
    const Shape& other = b.shape(value);
    if (!can_broadcast(shape, other)) {
      operation_error(fmt::format("shapes {} and {} do not broadcast", shape_string(shape),
                                  shape_string(other)),
                      "sizes must be equal or 1, compared from the last dimension");
    }
    shape = broadcast_shapes(shape, other);
  }
}

bool broadcasts_to(const Shape& own, const Shape& shape) {
  return can_broadcast(own, shape) && broadcast_shapes(own, shape) == shape;
}

ValueId broadcast_operand(Builder& b, ValueId value, Shape shape) {
  const Shape& own = b.shape(value);
  const bool has_sizes = std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n > 0; }) &&
                         !is_too_large(shape);
  if (!has_sizes || !broadcasts_to(own, shape)) {
    operation_error(
        fmt::format("{} does not broadcast to ({})", shape_string(own), fmt::join(shape, ", ")));
  }
  return b.broadcast_to(value, std::move(shape));
}

ValueId OperationContext::tensor(size_t i) const {
  return tensor(i, floatx);
}

ValueId OperationContext::tensor(size_t i, DType like) const {
  if (operands[i].is_tensor()) {
    return operands[i].tensor;
  }
  if (operands[i].is_list) {
    operation_error("a list of tensors stands where one tensor is taken");
  }
  const Numbers numbers = numbers_of_constant(operands[i].constant);
  const DType dtype = numbers.kind == Weak::kFloat && !is_floating(like) ? floatx : like;
  return constant_tensor(b, numbers, dtype);
}

ValueId OperationContext::floating(size_t i) const {
  const ValueId x = tensor(i);
  return is_floating(b.dtype(x)) ? x : b.cast(x, floatx);
}

std::vector<ValueId> OperationContext::promoted(const std::vector<Operand>& given) const {
  std::optional<DType> dtype;
  std::vector<std::optional<Numbers>> constants(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_list) {
      operation_error("a list of tensors stands where one tensor is taken");
    }
    if (given[i].is_tensor()) {
      const DType own = b.dtype(given[i].tensor);
      dtype = dtype ? wider(*dtype, own) : own;
    } else {
      constants[i] = numbers_of_constant(given[i].constant);
    }
  }
  DType common = dtype.value_or(floatx);
  for (const auto& numbers : constants) {
    common = numbers ? with_constant(common, numbers->kind, floatx) : common;
  }
  std::vector<ValueId> out;
  for (size_t i = 0; i < given.size(); ++i) {
    out.push_back(constants[i] ? constant_tensor(b, *constants[i], common)
                               : b.cast(given[i].tensor, common));
  }
  return out;
}

std::vector<ValueId> OperationContext::broadcast_floats() const {
  std::vector<ValueId> values = promoted(operands);
  check_broadcast(b, values);
  for (ValueId& value : values) {
    value = is_floating(b.dtype(value)) ? value : b.cast(value, floatx);
  }
  return values;
}

bool OperationContext::is_null(std::string_view name) const {
  return std::holds_alternative<std::monostate>(argument_of(*this, name).data);
}

int64_t OperationContext::integer(std::string_view name) const {
  const auto value = as_size(argument_of(*this, name));
  return value ? *value : (wrong_argument(*this, name, "an integer from -2^48 to 2^48"), 0);
}

double OperationContext::number(std::string_view name) const {
  const auto value = as_number(argument_of(*this, name));
  return value ? *value : (wrong_argument(*this, name, "a number"), 0);
}

bool OperationContext::boolean(std::string_view name) const {
  const bool* value = std::get_if<bool>(&argument_of(*this, name).data);
  return value != nullptr ? *value : (wrong_argument(*this, name, "true or false"), false);
}

std::string OperationContext::text(std::string_view name) const {
  const auto* value = std::get_if<std::string>(&argument_of(*this, name).data);
  return value != nullptr ? *value : (wrong_argument(*this, name, "text in quotes"), "");
}

bool OperationContext::channels_first() const {
  const std::string format = is_null("data_format") ? "channels_last" : text("data_format");
  if (format != "channels_last" && format != "channels_first") {
    wrong_argument(*this, "data_format", "channels_last or channels_first");
  }
  return format == "channels_first";
}

std::vector<int64_t> OperationContext::integers(std::string_view name) const {
  const ExprValue& value = argument_of(*this, name);
  if (as_list(value) == nullptr) {
    return {integer(name)};
  }
  std::vector<int64_t> out;
  for (const ExprValue& entry : *as_list(value)) {
    const auto one = as_size(entry);
    if (!one) {
      wrong_argument(*this, name, "a list of integers from -2^48 to 2^48");
    }
    out.push_back(*one);
  }
  return out;
}

std::vector<double> OperationContext::numbers(std::string_view name) const {
  const ExprValue& value = argument_of(*this, name);
  if (as_list(value) == nullptr) {
    return {number(name)};
  }
  std::vector<double> out;
  for (const ExprValue& entry : *as_list(value)) {
    const auto one = as_number(entry);
    if (!one) {
      wrong_argument(*this, name, "a list of numbers");
    }
    out.push_back(*one);
  }
  return out;
}

std::vector<int64_t> OperationContext::axes(std::string_view name, size_t rank) const {
  std::vector<int64_t> out;
  if (is_null(name)) {
    for (size_t i = 0; i < rank; ++i) {
      out.push_back(static_cast<int64_t>(i));
    }
    return out;
  }
  for (const int64_t given : integers(name)) {
    const auto axis = axis_in(given, rank);
    if (!axis) {
      operation_error(fmt::format("there is no axis {} in {} dimensions", given, rank),
                      "the batch is axis 0, the last dimension is -1");
    }
    out.push_back(*axis);
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) {
    operation_error(fmt::format("`{}` names a dimension twice", name));
  }
  return out;
}

int64_t OperationContext::axis(std::string_view name, size_t rank) const {
  integer(name);
  return axes(name, rank)[0];
}

std::vector<Operation::Parameter> Operation::operand_parameters() const {
  return parameters_of(operands);
}

std::vector<Operation::Parameter> Operation::parameters() const {
  return parameters_of(arguments);
}

bool Operation::is_call_argument(std::string_view argument) const {
  for (const std::string_view of_call :
       {"key", "indices", "constant_values", "q", "rtol", "atol", "scale"}) {
    if (argument == of_call) {
      return true;
    }
  }
  return false;
}

const Operation* find_operation(std::string_view name) {
  static const std::pair<std::string_view, std::string_view> kOtherNames[] = {
      {"abs", "absolute"},
      {"neg", "negative"},
      {"pow", "power"},
      {"swish", "silu"},
      {"hard_swish", "hard_silu"}};
  for (const auto& [other, own] : kOtherNames) {
    name = name == other ? own : name;
  }
  for (const Operation& operation : all_operations()) {
    if (operation.name == name) {
      return &operation;
    }
  }
  return nullptr;
}

const Operation* find_operation_class(std::string_view class_name) {
  for (const Operation& operation : all_operations()) {
    if (operation.class_name == class_name) {
      return &operation;
    }
  }
  return nullptr;
}

std::vector<std::string> operation_names() {
  std::vector<std::string> out;
  for (const Operation& operation : all_operations()) {
    out.emplace_back(operation.name);
  }
  return out;
}

const Operation& operation_of_operator(std::string_view op, size_t operands) {
  static const std::pair<std::string_view, std::string_view> kOperators[] = {
      {"+", "add"},           {"-", "subtract"}, {"*", "multiply"},    {"/", "true_divide"},
      {"//", "floor_divide"}, {"%", "mod"},      {"**", "power"},      {"==", "equal"},
      {"!=", "not_equal"},    {"<", "less"},     {"<=", "less_equal"}, {">", "greater"},
      {">=", "greater_equal"}};
  if (op == "-" && operands == 1) {
    return *find_operation("negative");
  }
  for (const auto& [known, name] : kOperators) {
    if (op == known) {
      return *find_operation(name);
    }
  }
  throw InternalError(fmt::format("no operator {}", op));
}

}  // namespace meshtrain
