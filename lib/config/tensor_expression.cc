#include "config/tensor_expression.h"

#include <algorithm>

#include "base/text.h"
#include "config/expression_parser.h"

namespace meshtrain {
namespace {

class NoNames : public ExprNames {
 public:
  ExprValue lookup(const std::string& name) override {
    throw ExprError{ExprError::kNoOffset, fmt::format("`{}` is no number", name), {}, {}};
  }
};

bool mentions(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || (!is_name_char(text[at - 1]) && text[at - 1] != '.');
    if (begins && (end == text.size() || !is_name_char(text[end]))) {
      return true;
    }
  }
  return false;
}

// x, x1, x2, ..., and what a loss compares.
bool is_own_name(const std::string& name) {
  static constexpr std::string_view kOwn[] = {"y_true", "y_pred", "None", "null",
                                              "True",   "False",  "pi",   "x"};
  const bool numbered =
      name.size() > 1 && name[0] == 'x' &&
      std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return numbered || std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

bool names_input(const YamlNode* inputs, const std::string& name) {
  if (inputs == nullptr) {
    return false;
  }
  if (inputs->is_scalar()) {
    return inputs->text == name || ends_with(inputs->text, "/" + name);
  }
  return std::any_of(inputs->children.begin(), inputs->children.end(),
                     [&](const YamlNode& child) { return names_input(&child, name); });
}

}  // namespace

bool is_loss_expression(std::string_view text) {
  return starts_with(text, "=") && (mentions(text, "y_true") || mentions(text, "y_pred"));
}

YamlNode* lambda_arguments(YamlNode& node) {
  if (node.key == kLambda && node.is_scalar()) {
    YamlNode function = node;
    function.key = "function";
    node.kind = YamlNode::Kind::kMap;
    node.quoted = false;
    node.text.clear();
    node.children = {std::move(function)};
    return &node;
  }
  if (!node.is_map()) {
    return nullptr;
  }
  const YamlNode* type = node.find("type");
  const bool is_lambda = node.key == kLambda || (type != nullptr && type->text == kLambda);
  const YamlNode* function = node.find("function");
  return is_lambda && function != nullptr && function->is_scalar() ? &node : nullptr;
}

void make_lambda(YamlNode& node) {
  YamlNode lambda = node;
  lambda.key = kLambda;
  lambda.key_loc = node.loc;
  node.kind = YamlNode::Kind::kMap;
  node.quoted = false;
  node.text.clear();
  node.children = {std::move(lambda)};
}

std::vector<std::string> free_names(const YamlNode& arguments) {
  const YamlNode* inputs = arguments.find("inputs");
  std::vector<std::string> names =
      variables_in(parse_expression(expression_text(arguments.find("function")->text)));
  std::erase_if(names, [&](const std::string& name) {
    return is_own_name(name) || names_input(inputs, name);
  });
  return names;
}

std::string_view expression_text(std::string_view function) {
  return starts_with(function, "=") ? function.substr(1) : function;
}

ExprValue constant_of_text(std::string_view text) {
  NoNames none;
  return evaluate_text(text, none);
}

SourceLoc expression_place(const SourceLoc& value, std::string_view function, size_t offset) {
  SourceLoc place = value;
  if (offset == ExprError::kNoOffset || !value) {
    return place;
  }
  const std::string_view line = value.file->line(value.line);
  const size_t begin = static_cast<size_t>(value.column) - 1;
  const size_t quote = begin < line.size() && (line[begin] == '"' || line[begin] == '\'') ? 1 : 0;
  const size_t at = begin + quote + (starts_with(function, "=") ? 1 : 0) + offset;
  // A text over several lines, or with escapes, is pointed at as a whole.
  if (begin + quote <= line.size() && at < line.size() &&
      starts_with(line.substr(begin + quote), function.substr(0, at - begin - quote))) {
    place.column = static_cast<int>(at) + 1;
    place.length = 1;
  }
  return place;
}

}  // namespace meshtrain
