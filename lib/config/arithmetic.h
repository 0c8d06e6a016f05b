// Values of expressions and what can be done with them; rules are Python's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace meshtrain {

struct ExprValue {
  std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<ExprValue>> data;
};

// Thrown while an expression is evaluated; becomes a diagnostic at the value's place.
struct ExprError {
  static constexpr size_t kNoOffset = static_cast<size_t>(-1);
  size_t offset = kNoOffset;  // in the expression's text
  std::string message;
  std::string code;  // E132 when empty
  std::string help;
};

// "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=". Integers stay integers but
// with "/" and negative powers. Throws on other types, overflow and division by zero.
ExprValue apply_operator(std::string_view op, const ExprValue& a, const ExprValue& b);
// list[index], negative from the end; a text "2x4" is the list [2, 4].
ExprValue element_of(const ExprValue& list, const ExprValue& index);
// min, max, round, factorizations; abs, floor, sqrt, exp, log, cos of a number, as floats but for
// abs and floor of an integer.
ExprValue call_function(const std::string& name, const std::vector<ExprValue>& arguments);
// As it would be written in YAML: "0.25", "true", "[2, 4]".
std::string expr_text(const ExprValue& value);

}  // namespace meshtrain
