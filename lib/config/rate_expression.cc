#include "config/rate_expression.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/text.h"
#include "config/expression_parser.h"
#include "config/object_form.h"

namespace meshtrain {
namespace {

constexpr double kPi = 3.14159265358979323846;

class RateNames : public ExprNames {
 public:
  RateNames(int64_t epoch, double rate) : epoch_(epoch), rate_(rate) {}

  ExprValue lookup(const std::string& name) override {
    if (name == "epoch") {
      return ExprValue{epoch_};
    }
    if (name == "lr" || name == "pi") {
      return ExprValue{name == "lr" ? rate_ : kPi};
    }
    throw ExprError{ExprError::kNoOffset,
                    fmt::format("there is no `{}`", name),
                    {},
                    "a schedule knows `epoch`, `lr`, `pi` and the names of `vars`"};
  }

 private:
  int64_t epoch_;
  double rate_;
};

bool is_own(const std::string& name) {
  return name == "epoch" || name == "lr" || name == "pi" || name == "if" || name == "else" ||
         name == "true" || name == "false";
}

bool has_text(const ExprValue& value) {
  const auto* list = std::get_if<std::vector<ExprValue>>(&value.data);
  return list != nullptr ? std::any_of(list->begin(), list->end(), has_text)
                         : std::holds_alternative<std::string>(value.data) ||
                               std::holds_alternative<std::monostate>(value.data);
}

// As it stands within an expression.
std::string as_operand(const ExprValue& value, const std::string& name) {
  if (has_text(value)) {
    throw ExprError{ExprError::kNoOffset, fmt::format("`{}` is no number", name), {}, {}};
  }
  const std::string text = expr_text(value);
  return starts_with(text, "-") ? "(" + text + ")" : text;
}

// Where a word (a name with its dots, or a number with its exponent) ends.
size_t word_end(std::string_view text, size_t at) {
  const bool is_number = std::isdigit(static_cast<unsigned char>(text[at])) != 0 || text[at] == '.';
  size_t end = at;
  const auto belongs = [&](char c) {
    const bool sign =
        (c == '+' || c == '-') && end > at && (text[end - 1] == 'e' || text[end - 1] == 'E');
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' ||
           (is_number && sign);
  };
  while (end < text.size() && belongs(text[end])) {
    ++end;
  }
  return end;
}

std::string bind_names(std::string_view text, Expressions& expressions) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.') {
      out += c;
      ++at;
      continue;
    }
    const size_t end = word_end(text, at);
    const std::string word(text.substr(at, end - at));
    const bool is_name = std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
    const bool is_call = starts_with(trim(text.substr(end)), "(") && !is_own(word);
    try {
      out +=
          is_name && !is_call && !is_own(word) ? as_operand(expressions.lookup(word), word) : word;
    } catch (ExprError& error) {
      error.offset = at;
      throw;
    }
    at = end;
  }
  return out;
}

YamlNode* schedule_of(YamlNode& entry) {
  const auto form = object_form(entry, Category::kCallback);
  const ClassSpec* const spec = form ? find_class(Category::kCallback, form->spelled) : nullptr;
  if (spec == nullptr) {
    return nullptr;
  }
  const auto arg = std::find_if(spec->args.begin(), spec->args.end(),
                                [](const Spec& one) { return one.is_evaluated_later; });
  if (arg == spec->args.end()) {
    return nullptr;
  }
  const YamlNode* found = form->args == nullptr ? form->first : form->args->find(arg->name);
  return const_cast<YamlNode*>(found);  // a part of `entry`, which is ours to change
}

}  // namespace

double RateExpression::operator()(int64_t epoch, double rate) const {
  RateNames names(epoch, rate);
  const ExprValue value = evaluate_text(text_, names);
  const auto* integer = std::get_if<int64_t>(&value.data);
  const auto* number = std::get_if<double>(&value.data);
  if (integer == nullptr && number == nullptr) {
    throw ExprError{ExprError::kNoOffset, "it gives no number", {}, {}};
  }
  const double result = integer != nullptr ? static_cast<double>(*integer) : *number;
  if (!std::isfinite(result) || result < 0) {
    throw ExprError{
        ExprError::kNoOffset,
        fmt::format("it gives {} in epoch {} (from 0) at a rate of {}", result, epoch, rate),
        {},
        "a learning rate is 0 or more"};
  }
  return result;
}

void bind_rate_expressions(YamlNode& root, Expressions& expressions, Diagnostics& diagnostics) {
  YamlNode* callbacks = root.find("callbacks");
  if (callbacks == nullptr || !callbacks->is_list()) {
    return;
  }
  for (YamlNode& entry : callbacks->children) {
    YamlNode* schedule = schedule_of(entry);
    if (schedule == nullptr || !schedule->is_scalar() ||
        schedule->text.find("${") != std::string::npos) {
      continue;
    }
    const std::string text =
        starts_with(schedule->text, "=") ? schedule->text.substr(1) : schedule->text;
    try {
      schedule->text = std::string(trim(bind_names(text, expressions)));
    } catch (const ExprError& error) {
      diagnostics
          .error("E132", schedule->loc,
                 fmt::format("cannot evaluate `{}`: {}", schedule->text, error.message))
          .help(starts_with(error.help, "did you mean")
                    ? error.help
                    : "names are `epoch`, `lr`, `pi` and those of `vars`; each epoch has one rate");
      schedule->text = "lr";
    }
  }
}

}  // namespace meshtrain
