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

using Kind = ExprNode::Kind;

constexpr int kMaxNesting = 100;     // brackets and signs within each other
constexpr size_t kMaxNodes = 10000;  // parts of one expression

// Recursive descent with Python's precedence; throws ExprError with the offset.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  ExprNode parse() {
    ExprNode node = conditional();
    skip_blanks();
    if (at_ < text_.size()) {
      unexpected();
    }
    return node;
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

  [[noreturn]] void unexpected() const {
    throw ExprError{at_, fmt::format("`{}` is unexpected", text_.substr(at_, 10)), {}, {}};
  }

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

  // The word, and not the beginning of a longer one.
  bool take_word(std::string_view word) {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    const bool is_longer =
        rest.size() > word.size() && (is_name_char(rest[word.size()]) || rest[word.size()] == '.');
    return !is_longer && take(word);
  }

  void expect(std::string_view token) {
    if (!take(token)) {
      throw ExprError{at_, fmt::format("`{}` is missing", token), {}, {}};
    }
  }

  ExprNode made(Kind kind, size_t offset, std::string_view text = {},
                std::vector<ExprNode> children = {}) {
    if (++num_nodes_ > kMaxNodes) {
      throw ExprError{
          offset, fmt::format("the expression has more than {} parts", kMaxNodes), {}, {}};
    }
    return {kind, offset, std::string(text), {}, std::move(children), {}};
  }

  ExprNode binary(std::string_view op, ExprNode a, ExprNode (Parser::*right)()) {
    const size_t place = at_ - op.size();
    std::vector<ExprNode> operands;
    operands.push_back(std::move(a));
    operands.push_back((this->*right)());
    return made(Kind::kOperator, place, op, std::move(operands));
  }

  ExprNode conditional() {
    const Deeper deeper(*this);
    std::vector<ExprNode> parts;
    parts.push_back(comparison());
    skip_blanks();
    const size_t place = at_;
    if (!take_word("if")) {
      return std::move(parts[0]);
    }
    parts.push_back(comparison());
    if (!take_word("else")) {
      throw ExprError{place, "`if` without `else`", {}, {}};
    }
    parts.push_back(conditional());
    return made(Kind::kConditional, place, "if", std::move(parts));
  }

  ExprNode comparison() {
    const Deeper deeper(*this);
    ExprNode node = sum();
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take(op)) {
        return binary(op, std::move(node), &Parser::sum);
      }
    }
    return node;
  }

  ExprNode sum() {
    ExprNode node = product();
    while (true) {
      if (take("+")) {
        node = binary("+", std::move(node), &Parser::product);
      } else if (take("-")) {
        node = binary("-", std::move(node), &Parser::product);
      } else {
        return node;
      }
    }
  }

  ExprNode product() {
    ExprNode node = sign();
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
        return node;
      }
      at_ += op.size();
      node = binary(op, std::move(node), &Parser::sign);
    }
  }

  ExprNode sign() {
    const Deeper deeper(*this);
    if (take("-")) {
      const size_t place = at_ - 1;
      std::vector<ExprNode> operand;
      operand.push_back(sign());
      return made(Kind::kOperator, place, "-", std::move(operand));
    }
    if (take("+")) {
      return sign();
    }
    ExprNode base = postfix();
    return take("**") ? binary("**", std::move(base), &Parser::sign) : base;
  }

  ExprNode postfix() {
    ExprNode node = primary();
    while (take("[")) {
      const size_t place = at_ - 1;
      std::vector<ExprNode> parts;
      parts.push_back(std::move(node));
      do {
        parts.push_back(index_entry());
      } while (take(","));
      expect("]");
      node = made(Kind::kIndex, place, {}, std::move(parts));
    }
    return node;
  }

  // One entry between the brackets of x[...]: a value, `...`, or a slice such as `1:`, `::2`.
  ExprNode index_entry() {
    skip_blanks();
    const size_t place = at_;
    if (take("...")) {
      return made(Kind::kEllipsis, place, "...");
    }
    std::vector<ExprNode> parts = {part_of_slice()};
    while (parts.size() < 3 && take(":")) {
      parts.push_back(part_of_slice());
    }
    if (parts.size() == 1) {
      if (parts[0].kind == Kind::kNothing) {
        throw ExprError{at_, "an index is missing", {}, {}};
      }
      return std::move(parts[0]);
    }
    parts.resize(3);
    return made(Kind::kSlice, place, ":", std::move(parts));
  }

  ExprNode part_of_slice() {
    skip_blanks();
    const char next = at_ < text_.size() ? text_[at_] : ']';
    return next == ':' || next == ',' || next == ']' ? ExprNode{.offset = at_} : conditional();
  }

  std::vector<ExprNode> items(std::string_view close) {
    std::vector<ExprNode> out;
    while (!take(close)) {
      out.push_back(conditional());
      if (!take(",")) {
        expect(close);
        break;
      }
    }
    return out;
  }

  ExprNode primary() {
    skip_blanks();
    const size_t place = at_;
    if (take("(")) {
      ExprNode inner = conditional();
      if (!take(",")) {
        expect(")");
        return inner;
      }
      std::vector<ExprNode> entries = items(")");
      entries.insert(entries.begin(), std::move(inner));
      return made(Kind::kList, place, "(", std::move(entries));
    }
    if (take("[")) {
      return made(Kind::kList, place, "[", items("]"));
    }
    if (at_ >= text_.size()) {
      throw ExprError{at_, "a value is missing", {}, {}};
    }
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      return quoted(c);
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') {
      return literal();
    }
    return is_name_char(c) ? name_or_call() : (unexpected(), ExprNode{});
  }

  ExprNode constant(size_t place, ExprValue value) {
    ExprNode node = made(Kind::kConstant, place);
    node.value = std::move(value);
    return node;
  }

  ExprNode quoted(char quote) {
    const size_t begin = at_, end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) {
      throw ExprError{at_, "a quote is not closed", {}, {}};
    }
    at_ = end + 1;
    return constant(begin, ExprValue{std::string(text_.substr(begin + 1, end - begin - 1))});
  }

  ExprNode literal() {
    const size_t begin = at_;
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
    return constant(begin, integer ? ExprValue{*integer} : ExprValue{*number});
  }

  // Dots join a path; parts of it may be layer indices.
  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (is_name_char(text_[at_]) ||
            (text_[at_] == '.' && at_ + 1 < text_.size() && is_name_char(text_[at_ + 1])))) {
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  ExprNode name_or_call() {
    const size_t place = at_;
    const std::string text = name();
    if (take("(")) {
      return call(text, place);
    }
    if (text == "true" || text == "false") {
      return constant(place, ExprValue{text == "true"});
    }
    return made(Kind::kName, place, text);
  }

  ExprNode call(const std::string& function, size_t place) {
    std::vector<ExprNode> arguments;
    std::vector<std::string> keywords;
    while (!take(")")) {
      keywords.push_back(keyword());
      arguments.push_back(conditional());
      if (!take(",")) {
        expect(")");
        break;
      }
    }
    ExprNode node = made(Kind::kCall, place, function, std::move(arguments));
    node.keywords = std::move(keywords);
    return node;
  }

  // `axis=`, where that comes next.
  std::string keyword() {
    skip_blanks();
    const size_t before = at_;
    if (at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) != 0)) {
      std::string text = name();
      skip_blanks();
      const std::string_view rest = text_.substr(at_);
      if (starts_with(rest, "=") && !starts_with(rest, "==")) {
        ++at_;
        return text;
      }
    }
    at_ = before;
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  size_t num_nodes_ = 0;
};

}  // namespace

ExprNode parse_expression(std::string_view text) {
  return Parser(text).parse();
}

bool is_name_alone(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), is_name_char);
}

}  // namespace meshtrain
