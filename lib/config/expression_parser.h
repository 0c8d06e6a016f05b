// The text of an expression to its value, by recursive descent with Python's precedence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/arithmetic.h"

namespace meshtrain {

// Looks names up; a name may itself stand for an expression.
class ExprNames {
 public:
  virtual ~ExprNames() = default;
  virtual ExprValue lookup(const std::string& path) = 0;
  // The value of a function, one of arithmetic (call_function) unless others are known.
  virtual ExprValue call(const std::string& name, const std::vector<ExprValue>& arguments) {
    return call_function(name, arguments);
  }
};

// Throws ExprError with the offset in `text`.
ExprValue evaluate_text(std::string_view text, ExprNames& names);
// A letter, digit or `_`.
bool is_name_char(char c);
// "d_model": a name and nothing else.
bool is_name_alone(std::string_view text);

}  // namespace meshtrain
