#include "config/arithmetic.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

using List = std::vector<ExprValue>;

[[noreturn]] void fail(std::string message) {
  throw ExprError{ExprError::kNoOffset, std::move(message), {}, {}};
}

const int64_t* as_int(const ExprValue& value) {
  return std::get_if<int64_t>(&value.data);
}

double as_number(const ExprValue& value) {
  if (const int64_t* integer = as_int(value)) {
    return static_cast<double>(*integer);
  }
  if (const double* number = std::get_if<double>(&value.data)) {
    return *number;
  }
  fail(fmt::format("`{}` is no number", expr_text(value)));
}

[[noreturn]] void overflow() {
  fail("the result is larger than 2^63-1");
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) {
      overflow();
    }
    if (result == 0 || (result == 1 && base == 1)) {
      return result;
    }
    if (base == -1) {
      return exponent % 2 == 0 ? 1 : -1;  // the rest of the powers only changes the sign
    }
  }
  return result;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) {
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) {
      overflow();
    }
    return result;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

ExprValue integer_operator(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (op == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (b == 0) {
    fail("division by zero");
  } else if (op == "//") {
    result = floor_divide(a, b);
  } else {
    result = b == -1 ? 0 : a % b;
    result += result != 0 && (result < 0) != (b < 0) ? b : 0;
  }
  if (overflows) {
    overflow();
  }
  return ExprValue{result};
}

double number_operator(std::string_view op, double a, double b) {
  if (op == "+") {
    return a + b;
  }
  if (op == "-") {
    return a - b;
  }
  if (op == "*") {
    return a * b;
  }
  if (op == "**") {
    return std::pow(a, b);
  }
  if (b == 0) {
    fail("division by zero");
  }
  return op == "/" ? a / b : op == "//" ? std::floor(a / b) : a - b * std::floor(a / b);
}

int compare(const ExprValue& a, const ExprValue& b) {
  const auto* text_a = std::get_if<std::string>(&a.data);
  const auto* text_b = std::get_if<std::string>(&b.data);
  if (text_a != nullptr && text_b != nullptr) {
    return text_a->compare(*text_b);
  }
  const double x = as_number(a);
  const double y = as_number(b);
  return x < y ? -1 : x > y ? 1 : 0;
}

bool are_equal(const ExprValue& a, const ExprValue& b) {
  const bool numbers = a.data.index() == 2 || a.data.index() == 3;
  if (numbers && (b.data.index() == 2 || b.data.index() == 3)) {
    return as_number(a) == as_number(b);
  }
  return a.data.index() == b.data.index() && expr_text(a) == expr_text(b);
}

// All ways to write n as an ordered product of `dims` factors, the first factors largest first:
// factorizations(8, 2) = 8x1 4x2 2x4 1x8.
void factorize(int64_t n, int64_t dims, List& prefix, List& out) {
  if (dims == 1) {
    prefix.emplace_back().data = n;
    if (out.size() >= 10000) {
      fail("more than 10000 factorizations");
    }
    out.emplace_back().data = prefix;
    prefix.pop_back();
    return;
  }
  for (int64_t factor = n; factor >= 1; --factor) {
    if (n % factor == 0) {
      prefix.emplace_back().data = factor;
      factorize(n / factor, dims - 1, prefix, out);
      prefix.pop_back();
    }
  }
}

ExprValue factorizations(const List& arguments) {
  const int64_t* n = arguments.size() == 2 ? as_int(arguments[0]) : nullptr;
  const int64_t* dims = arguments.size() == 2 ? as_int(arguments[1]) : nullptr;
  if (n == nullptr || dims == nullptr || *n < 1 || *n > 65536 || *dims < 1 || *dims > 8) {
    fail("factorizations(n, dims) takes 1 <= n <= 65536 and 1 <= dims <= 8");
  }
  List prefix;
  List out;
  factorize(*n, *dims, prefix, out);
  return ExprValue{std::move(out)};
}

ExprValue round_number(const List& arguments) {
  if (arguments.empty() || arguments.size() > 2) {
    fail("round takes a number, and how many digits to keep");
  }
  const double value = as_number(arguments[0]);
  if (arguments.size() == 2) {
    const double scale = std::pow(10.0, as_number(arguments[1]));
    return ExprValue{std::nearbyint(value * scale) / scale};
  }
  if (std::abs(value) >= 9.2e18) {
    overflow();
  }
  return ExprValue{static_cast<int64_t>(std::nearbyint(value))};
}

}  // namespace

ExprValue apply_operator(std::string_view op, const ExprValue& a, const ExprValue& b) {
  if (op == "==" || op == "!=") {
    return ExprValue{are_equal(a, b) == (op == "==")};
  }
  if (op[0] == '<' || op[0] == '>') {
    const int order = compare(a, b);
    const bool holds = op == "<"    ? order < 0
                       : op == "<=" ? order <= 0
                       : op == ">"  ? order > 0
                                    : order >= 0;
    return ExprValue{holds};
  }
  const int64_t* x = as_int(a);
  const int64_t* y = as_int(b);
  if (x != nullptr && y != nullptr && op != "/") {
    if (op == "**" && *y >= 0) {
      return ExprValue{power(*x, *y)};
    }
    if (op != "**") {
      return integer_operator(op, *x, *y);
    }
  }
  const double result = number_operator(op, as_number(a), as_number(b));
  if (!std::isfinite(result)) {
    fail("the result is not finite");
  }
  return ExprValue{result};
}

ExprValue element_of(const ExprValue& list, const ExprValue& index) {
  if (const auto* text = std::get_if<std::string>(&list.data)) {
    List sizes;
    for (const std::string& part : split(*text, 'x')) {
      if (const auto size = try_integer(part)) {
        sizes.emplace_back().data = *size;
      } else {
        fail(fmt::format("`{}` is no list", *text));
      }
    }
    return element_of(ExprValue{std::move(sizes)}, index);
  }
  const List* entries = std::get_if<List>(&list.data);
  const int64_t* at = as_int(index);
  if (entries == nullptr || at == nullptr) {
    fail(entries == nullptr ? fmt::format("`{}` is no list", expr_text(list))
                            : fmt::format("`{}` is no index", expr_text(index)));
  }
  const auto size = static_cast<int64_t>(entries->size());
  if (*at < -size || *at >= size) {
    fail(fmt::format("index {} is outside of a list of {}", *at, size));
  }
  return (*entries)[static_cast<size_t>(*at < 0 ? *at + size : *at)];
}

namespace {

double (*function_of_number(const std::string& name))(double) {
  using Function = double (*)(double);
  static const std::pair<const char*, Function> kFunctions[] = {
      {"abs", std::fabs}, {"floor", std::floor}, {"sqrt", std::sqrt},
      {"exp", std::exp},  {"log", std::log},     {"cos", std::cos}};
  for (const auto& [known, function] : kFunctions) {
    if (name == known) {
      return function;
    }
  }
  return nullptr;
}

ExprValue apply_to_number(const std::string& name, double (*function)(double),
                          const std::vector<ExprValue>& arguments) {
  const auto* integer = arguments.size() == 1 ? std::get_if<int64_t>(&arguments[0].data) : nullptr;
  const auto* number = arguments.size() == 1 ? std::get_if<double>(&arguments[0].data) : nullptr;
  if (integer == nullptr && number == nullptr) {
    fail(fmt::format("{} needs one number", name));
  }
  if (integer != nullptr && name == "floor") {
    return *arguments.data();
  }
  if (integer != nullptr && name == "abs" && *integer != INT64_MIN) {
    return ExprValue{std::abs(*integer)};
  }
  const double result = function(integer != nullptr ? static_cast<double>(*integer) : *number);
  if (!std::isfinite(result)) {
    fail(fmt::format("{} has no value there", name));
  }
  return ExprValue{result};
}

}  // namespace

ExprValue call_function(const std::string& name, const std::vector<ExprValue>& arguments) {
  if (name == "factorizations") {
    return factorizations(arguments);
  }
  if (name == "round") {
    return round_number(arguments);
  }
  if (const auto function = function_of_number(name)) {
    return apply_to_number(name, function, arguments);
  }
  if (name != "min" && name != "max") {
    fail(
        fmt::format("there is no function `{}`; there are min, max, round, abs, floor, sqrt, exp, "
                    "log, cos, factorizations",
                    name));
  }
  const List* list = arguments.size() == 1 ? std::get_if<List>(&arguments[0].data) : nullptr;
  const List& values = list != nullptr ? *list : arguments;
  if (values.empty()) {
    fail(fmt::format("{} needs at least one value", name));
  }
  ExprValue best = values[0];
  for (const ExprValue& value : values) {
    const int order = compare(value, best);
    best = (name == "min" ? order < 0 : order > 0) ? value : best;
  }
  return best;
}

std::string expr_text(const ExprValue& value) {
  switch (value.data.index()) {
    case 0:
      return "null";
    case 1:
      return std::get<bool>(value.data) ? "true" : "false";
    case 2:
      return fmt::format("{}", std::get<int64_t>(value.data));
    case 3:
      return format_shortest(std::get<double>(value.data));
    case 4:
      return std::get<std::string>(value.data);
    default: {
      std::vector<std::string> parts;
      for (const ExprValue& entry : std::get<List>(value.data)) {
        parts.push_back(expr_text(entry));
      }
      return "[" + join(parts, ", ") + "]";
    }
  }
}

}  // namespace meshtrain
