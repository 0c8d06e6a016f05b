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

// The names of the model's outputs: those of `outputs`, else that of the last layer, where it has
// one.
std::vector<std::string> names_of_outputs(const YamlNode& model) {
  std::vector<std::string> names;
  const YamlNode* const outputs = model.find("outputs");
  if (outputs != nullptr && outputs->is_scalar()) {
    names.push_back(outputs->text);
  } else if (outputs != nullptr && !outputs->is_null()) {
    for (const YamlNode& output : outputs->children) {
      names.push_back(outputs->is_map() ? output.key : output.text);
    }
  } else if (const YamlNode* layers = model.find("layers"); layers && !layers->children.empty()) {
    const YamlNode& last = layers->children.back();
    const YamlNode* name = last.find("name");
    if (name == nullptr && last.is_map() && !last.children.empty()) {
      name = last.children[0].find("name");  // - Dense: {name: d, units: 1}
    }
    names.push_back(name == nullptr ? "" : name->text);
  }
  return names;
}

bool names_any(std::string_view expression, const std::vector<std::string>& names) {
  try {
    const std::vector<std::string> used = variables_in(parse_expression(expression));
    return std::any_of(used.begin(), used.end(), [&](const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    });
  } catch (const ExprError&) {
    return false;  // reported when it is evaluated
  }
}

void make_lambdas(YamlNode& node, const std::vector<std::string>& outputs) {
  if (node.is_scalar() && !node.is_final && node.key != kLambda && starts_with(node.text, "=") &&
      names_any(node.text.substr(1), outputs)) {
    make_lambda(node);
  } else if (lambda_arguments(node) == nullptr) {
    for (YamlNode& child : node.children) {
      make_lambdas(child, outputs);
    }
  }
}

}  // namespace

bool is_loss_expression(std::string_view text) {
  return starts_with(text, "=") && (mentions(text, "y_true") || mentions(text, "y_pred"));
}

void make_lambdas_of_outputs(YamlNode& root) {
  const YamlNode* const model = root.find("model");
  YamlNode* const compile = root.find("compile");
  if (model == nullptr || compile == nullptr) {
    return;
  }
  std::vector<std::string> outputs = names_of_outputs(*model);
  const YamlNode* const vars = root.find("vars");
  std::erase_if(outputs, [&](const std::string& name) {
    return vars != nullptr && vars->find(name) != nullptr;
  });
  for (const char* key : {"loss", "metrics", "weighted_metrics"}) {
    if (YamlNode* const node = compile->find(key)) {
      make_lambdas(*node, outputs);
    }
  }
}

bool names_tensor(const ConfigObject& lambda, std::string_view name) {
  return mentions(lambda.string("function"), name);
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
