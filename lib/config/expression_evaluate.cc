// Values of expressions over numbers, texts and lists.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/expression_parser.h"

namespace meshtrain {
namespace {

using Kind = ExprNode::Kind;

// Calls `function`; an error without a place gets this one.
template <class F>
ExprValue at_place(size_t offset, F&& function) {
  try {
    return function();
  } catch (ExprError& error) {
    error.offset = error.offset == ExprError::kNoOffset ? offset : error.offset;
    throw;
  }
}

[[noreturn]] void only_of_tensors(const ExprNode& node, const char* what) {
  throw ExprError{node.offset, fmt::format("{} only of tensors", what), {}, {}};
}

std::vector<ExprValue> evaluate_all(const std::vector<ExprNode>& nodes, ExprNames& names) {
  std::vector<ExprValue> out;
  for (const ExprNode& node : nodes) {
    out.push_back(evaluate(node, names));
  }
  return out;
}

ExprValue evaluate_call(const ExprNode& node, ExprNames& names) {
  const auto named = std::find_if(node.keywords.begin(), node.keywords.end(),
                                  [](const std::string& name) { return !name.empty(); });
  if (named != node.keywords.end()) {
    only_of_tensors(node, "functions take arguments by name");
  }
  const std::vector<ExprValue> arguments = evaluate_all(node.children, names);
  return at_place(node.offset, [&] { return names.call(node.text, arguments); });
}

ExprValue evaluate_operator(const ExprNode& node, ExprNames& names) {
  const bool is_sign = node.children.size() == 1;
  const ExprValue a = is_sign ? ExprValue{int64_t{0}} : evaluate(node.children[0], names);
  const ExprValue b = evaluate(node.children.back(), names);
  return at_place(node.offset, [&] { return apply_operator(node.text, a, b); });
}

ExprValue evaluate_index(const ExprNode& node, ExprNames& names) {
  if (node.children.size() != 2) {
    only_of_tensors(node, "there are several indices");
  }
  const ExprValue list = evaluate(node.children[0], names);
  const ExprValue index = evaluate(node.children[1], names);
  return at_place(node.children[1].offset, [&] { return element_of(list, index); });
}

ExprValue evaluate_conditional(const ExprNode& node, ExprNames& names) {
  const ExprValue condition = evaluate(node.children[1], names);
  const bool* holds = std::get_if<bool>(&condition.data);
  if (holds == nullptr) {
    throw ExprError{node.offset,
                    "what follows `if` is neither true nor false",
                    {},
                    "a number is compared with another one: `epoch % 2 != 0`"};
  }
  return evaluate(node.children[*holds ? 0 : 2], names);
}

void collect_names(const ExprNode& node, std::set<std::string>& names) {
  if (node.kind == Kind::kName) {
    names.insert(node.text);
  }
  for (const ExprNode& child : node.children) {
    collect_names(child, names);
  }
}

}  // namespace

ExprValue evaluate(const ExprNode& node, ExprNames& names) {
  switch (node.kind) {
    case Kind::kConstant:
      return node.value;
    case Kind::kName:
      return at_place(node.offset, [&] { return names.lookup(node.text); });
    case Kind::kOperator:
      return evaluate_operator(node, names);
    case Kind::kCall:
      return evaluate_call(node, names);
    case Kind::kIndex:
      return evaluate_index(node, names);
    case Kind::kList:
      return ExprValue{evaluate_all(node.children, names)};
    case Kind::kConditional:
      return evaluate_conditional(node, names);
    default:
      only_of_tensors(node, "there are slices");
  }
}

ExprValue evaluate_text(std::string_view text, ExprNames& names) {
  return evaluate(parse_expression(text), names);
}

std::vector<std::string> variables_in(const ExprNode& node) {
  std::set<std::string> names;
  collect_names(node, names);
  return {names.begin(), names.end()};
}

}  // namespace meshtrain
