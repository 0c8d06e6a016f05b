// The grammar of expressions, which is Python's. Numbers and tensors share it: evaluate() computes
// numbers, nn/tensor_program.h makes operations on tensors.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/arithmetic.h"

namespace meshtrain {

// A part of an expression.
struct ExprNode {
  enum class Kind : uint8_t {
    kConstant,     // `value`
    kName,         // `text`: "d_model", "fit.epochs"
    kOperator,     // `text` of one or two children
    kCall,         // function `text` of the children
    kIndex,        // children: what is indexed, then each entry of the index
    kSlice,        // of an index: start, stop and step, each a kNothing where it is left out
    kEllipsis,     // `...` of an index
    kNothing,      // a part of a slice that is left out
    kList,         // [a, b] or (a, b)
    kConditional,  // `a if c else b`: a, c, b
  };
  Kind kind = Kind::kNothing;
  size_t offset = 0;  // in the expression's text
  std::string text;
  ExprValue value;
  std::vector<ExprNode> children;
  std::vector<std::string> keywords;  // of a call: the name of each argument, "" for none
};

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

// Throws ExprError with the offset in `text`: no expression, or nested too deeply.
ExprNode parse_expression(std::string_view text);
// Throws ExprError. Of a conditional only what is chosen is evaluated.
ExprValue evaluate(const ExprNode& node, ExprNames& names);
// Both in one.
ExprValue evaluate_text(std::string_view text, ExprNames& names);
// The names that occur in an expression, those of functions aside; sorted.
std::vector<std::string> variables_in(const ExprNode& node);
// A letter, digit or `_`.
bool is_name_char(char c);
// "d_model": a name and nothing else.
bool is_name_alone(std::string_view text);

}  // namespace meshtrain
