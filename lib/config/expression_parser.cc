#include "config/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "config/scalars.h"

namespace meshtrain {

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

namespace {

constexpr int kMaxNesting = 100;  // brackets and signs within each other

// Recursive descent with Python's precedence; throws ExprError with the offset.
class Parser {
 public:
  Parser(std::string_view text, ExprNames& names) : text_(text), names_(names) {}

  ExprValue parse() {
    ExprValue value = conditional();
    skip_blanks();
    if (at_ < text_.size()) {
      throw ExprError{at_, fmt::format("`{}` is unexpected", text_.substr(at_, 10)), {}, {}};
    }
    return value;
  }

 private:
  struct Deeper {
    explicit Deeper(Parser& parser) : depth(parser.depth_) {
      if (++depth > kMaxNesting) {
        throw ExprError{parser.at_, "nested too deeply", {}, {}};
      }
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  bool take(std::string_view token) {
    skip_blanks();
    if (!starts_with(text_.substr(at_), token)) {
      return false;
    }
    at_ += token.size();
    return true;
  }

  template <class F>
  ExprValue binary(std::string_view op, const ExprValue& a, F&& right) {
    const size_t place = at_ - op.size();
    const ExprValue b = right();
    try {
      return apply_operator(op, a, b);
    } catch (const ExprError& e) {
      throw ExprError{place, e.message, {}, {}};
    }
  }

  // Where the expression that begins here ends, and the first `word` at its own level before that.
  struct Extent {
    size_t word, end;
  };
  Extent find_word(std::string_view word) const {
    size_t depth = 0, found = std::string_view::npos, at = at_;
    for (; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '"' || c == '\'') {
        at = std::min(text_.find(c, at + 1), text_.size() - 1);
      } else if (c == '(' || c == '[') {
        ++depth;
      } else if (c == ')' || c == ']' || (c == ',' && depth == 0)) {
        if (depth == 0) {
          break;
        }
        --depth;
      } else if (is_name_char(c) || c == '.') {
        const size_t begin = at;
        while (at + 1 < text_.size() && (is_name_char(text_[at + 1]) || text_[at + 1] == '.')) {
          ++at;
        }
        if (depth == 0 && found == std::string_view::npos &&
            text_.substr(begin, at + 1 - begin) == word) {
          found = begin;
        }
      }
    }
    return {found, at};
  }

  // `a if c else b`: only what is chosen is evaluated.
  ExprValue conditional() {
    const Deeper deeper(*this);
    const size_t begin = at_, if_at = find_word("if").word;
    if (if_at == std::string_view::npos) {
      return comparison();
    }
    at_ = if_at + 2;
    const Extent other = find_word("else");
    if (other.word == std::string_view::npos) {
      throw ExprError{if_at, "`if` without `else`", {}, {}};
    }
    const bool holds = truth(part(at_, other.word), if_at);
    if (holds) {
      const ExprValue value = part(begin, if_at);
      at_ = other.end;
      return value;
    }
    at_ = other.word + 4;
    return conditional();
  }

  // The comparison that fills the text from `begin` to `end`.
  ExprValue part(size_t begin, size_t end) {
    at_ = begin;
    ExprValue value = comparison();
    skip_blanks();
    if (at_ != end) {
      throw ExprError{at_, fmt::format("`{}` is unexpected", text_.substr(at_, 10)), {}, {}};
    }
    return value;
  }

  static bool truth(const ExprValue& value, size_t place) {
    if (const auto* boolean = std::get_if<bool>(&value.data)) {
      return *boolean;
    }
    throw ExprError{place, "what follows `if` is neither true nor false", {}, {}};
  }

  ExprValue comparison() {
    const Deeper deeper(*this);
    ExprValue value = sum();
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take(op)) {
        return binary(op, value, [&] { return sum(); });
      }
    }
    return value;
  }

  ExprValue sum() {
    ExprValue value = product();
    while (true) {
      if (take("+")) {
        value = binary("+", value, [&] { return product(); });
      } else if (take("-")) {
        value = binary("-", value, [&] { return product(); });
      } else {
        return value;
      }
    }
  }

  ExprValue product() {
    ExprValue value = sign();
    while (true) {
      skip_blanks();
      const std::string_view rest = text_.substr(at_);
      const std::string_view op = starts_with(rest, "**")   ? ""
                                  : starts_with(rest, "//") ? "//"
                                  : starts_with(rest, "*")  ? "*"
                                  : starts_with(rest, "/")  ? "/"
                                  : starts_with(rest, "%")  ? "%"
                                                            : "";
      if (op.empty()) {
        return value;
      }
      at_ += op.size();
      value = binary(op, value, [&] { return sign(); });
    }
  }

  ExprValue sign() {
    const Deeper deeper(*this);
    if (take("-")) {
      return binary("-", ExprValue{int64_t{0}}, [&] { return sign(); });
    }
    if (take("+")) {
      return sign();
    }
    const ExprValue base = postfix();
    if (take("**")) {
      return binary("**", base, [&] { return sign(); });
    }
    return base;
  }

  ExprValue postfix() {
    ExprValue value = primary();
    while (take("[")) {
      const size_t place = at_;
      const ExprValue index = conditional();
      expect("]");
      try {
        value = element_of(value, index);
      } catch (const ExprError& e) {
        throw ExprError{place, e.message, {}, {}};
      }
    }
    return value;
  }

  void expect(std::string_view token) {
    if (!take(token)) {
      throw ExprError{at_, fmt::format("`{}` is missing", token), {}, {}};
    }
  }

  std::vector<ExprValue> items(std::string_view close) {
    std::vector<ExprValue> out;
    if (take(close)) {
      return out;
    }
    do {
      out.push_back(conditional());
    } while (take(","));
    expect(close);
    return out;
  }

  ExprValue primary() {
    skip_blanks();
    if (take("(")) {
      ExprValue value = conditional();
      expect(")");
      return value;
    }
    if (take("[")) {
      return ExprValue{items("]")};
    }
    if (at_ >= text_.size()) {
      throw ExprError{at_, "a value is missing", {}, {}};
    }
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      const size_t end = text_.find(c, at_ + 1);
      if (end == std::string_view::npos) {
        throw ExprError{at_, "a quote is not closed", {}, {}};
      }
      const std::string inner(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      return ExprValue{inner};
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') {
      return literal();
    }
    if (is_name_char(c)) {
      return name_or_call();
    }
    throw ExprError{at_, fmt::format("`{}` is unexpected", text_.substr(at_, 10)), {}, {}};
  }

  ExprValue literal() {
    size_t end = at_;
    while (end < text_.size() && (is_name_char(text_[end]) || text_[end] == '.' ||
                                  ((text_[end] == '+' || text_[end] == '-') && end > at_ &&
                                   (text_[end - 1] == 'e' || text_[end - 1] == 'E')))) {
      ++end;
    }
    const std::string_view text = text_.substr(at_, end - at_);
    const auto integer = try_integer(text);
    const auto number = try_number(text);
    if (!integer && !number) {
      throw ExprError{at_, fmt::format("`{}` is no number", text), {}, {}};
    }
    at_ = end;
    return integer ? ExprValue{*integer} : ExprValue{*number};
  }

  ExprValue name_or_call() {
    const size_t begin = at_;
    // Dots join a path; parts of it may be layer indices.
    while (at_ < text_.size() &&
           (is_name_char(text_[at_]) ||
            (text_[at_] == '.' && at_ + 1 < text_.size() && is_name_char(text_[at_ + 1])))) {
      ++at_;
    }
    const std::string name(text_.substr(begin, at_ - begin));
    try {
      if (take("(")) {
        const std::vector<ExprValue> arguments = items(")");
        return names_.call(name, arguments);
      }
      if (name == "true" || name == "false") {
        return ExprValue{name == "true"};
      }
      return names_.lookup(name);
    } catch (const ExprError& e) {
      throw ExprError{e.offset == ExprError::kNoOffset ? begin : e.offset, e.message, e.code,
                      e.help};
    }
  }

  std::string_view text_;
  ExprNames& names_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

ExprValue evaluate_text(std::string_view text, ExprNames& names) {
  return Parser(text, names).parse();
}

bool is_name_alone(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), is_name_char);
}

}  // namespace meshtrain
