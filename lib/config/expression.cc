#include "config/expression.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/text.h"
#include "config/arithmetic.h"
#include "config/path.h"
#include "config/scalars.h"
#include "config/source.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxResult = size_t{1} << 20;  // bytes of text and list entries, all together
constexpr int kMaxNesting = 100;                // brackets, signs and references within each other

// Code of an error whose cause has been reported where it is.
constexpr const char* kSilent = "silent";

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Looks names up; a name may itself stand for an expression.
class Names {
 public:
  virtual ~Names() = default;
  virtual ExprValue lookup(const std::string& path) = 0;
};

// Recursive descent with Python's precedence; throws ExprError with the offset.
class Parser {
 public:
  Parser(std::string_view text, Names& names) : text_(text), names_(names) {}

  ExprValue parse() {
    ExprValue value = comparison();
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
      const ExprValue index = comparison();
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
      out.push_back(comparison());
    } while (take(","));
    expect(close);
    return out;
  }

  ExprValue primary() {
    skip_blanks();
    if (take("(")) {
      ExprValue value = comparison();
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
        return call_function(name, arguments);
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
  Names& names_;
  size_t at_ = 0;
  int depth_ = 0;
};

class Evaluator : public Names {
 public:
  Evaluator(YamlNode& root, Diagnostics& diagnostics) : root_(root), diagnostics_(diagnostics) {}

  void evaluate_all(YamlNode& node) {
    evaluate(node);
    for (YamlNode& child : node.children) {
      evaluate_all(child);
    }
  }

  ExprValue lookup(const std::string& path) override { return value_of(target(path)); }

 private:
  static bool is_expression(const YamlNode& node) {
    return node.is_scalar() &&
           (starts_with(node.text, "=") || node.text.find("${") != std::string::npos);
  }

  void evaluate(YamlNode& node) {
    if (!is_expression(node) || node.failed) {
      return;
    }
    if (std::find(active_.begin(), active_.end(), &node) != active_.end()) {
      throw ExprError{ExprError::kNoOffset, "it depends on itself", {}, {}};
    }
    if (active_.size() >= static_cast<size_t>(kMaxNesting)) {
      throw ExprError{ExprError::kNoOffset, "references lead too deep", {}, {}};
    }
    active_.push_back(&node);
    try {
      if (node.text[0] == '=') {
        const std::string text = node.text.substr(1);
        replace(node, to_node(Parser(text, *this).parse(), node.loc));
      } else {
        interpolate(node);
      }
    } catch (const ExprError& e) {
      report(node, e);
    }
    active_.pop_back();
  }

  void report(YamlNode& node, const ExprError& e) {
    node.failed = true;
    if (e.code == kSilent) {
      return;
    }
    SourceLoc loc = node.loc;
    const size_t skipped = (node.quoted ? 1 : 0) + (node.text[0] == '=' ? 1 : 0);
    if (e.offset != ExprError::kNoOffset && static_cast<size_t>(loc.length) > e.offset + skipped) {
      loc.column += static_cast<int>(e.offset + skipped);
      loc.length = 1;
    }
    Diagnostic& d = diagnostics_.error(
        e.code.empty() ? "E132" : e.code, e.code.empty() ? loc : node.loc,
        e.code.empty() ? fmt::format("cannot evaluate `{}`: {}", node.text, e.message) : e.message);
    if (!e.help.empty()) {
      d.help(e.help);
    }
  }

  // References to references to ... lists double at each step; results together are bounded.
  void charge(size_t size) {
    spent_ += size;
    if (spent_ > kMaxResult) {
      throw ExprError{ExprError::kNoOffset, "references expand to more than 1 MiB", {}, {}};
    }
  }

  void charge_node(const YamlNode& node) {
    charge(node.text.size() + 1);
    for (const YamlNode& child : node.children) {
      charge_node(child);
    }
  }

  void replace(YamlNode& node, YamlNode value) {
    charge_node(value);
    value.key = std::move(node.key);
    value.key_loc = node.key_loc;
    value.loc = node.loc;
    value.alias_loc = node.alias_loc;
    node = std::move(value);
  }

  // The node of a name: of `vars` first, then of the whole config. Evaluates it.
  YamlNode& target(const std::string& path) {
    const auto parts = parse_path(path);
    if (!parts) {
      throw ExprError{ExprError::kNoOffset, fmt::format("`{}` is no path", path), {}, {}};
    }
    std::vector<std::string> in_vars = *parts;
    in_vars.insert(in_vars.begin(), "vars");
    const YamlNode* found = find_path(root_, in_vars);
    if (found == nullptr) {
      found = find_path(root_, *parts);
    }
    if (found == nullptr) {
      const auto default_text = default_at(*parts);
      if (default_text && *default_text != "null") {
        defaults_.push_back(std::make_unique<YamlNode>(YamlNode::scalar(*default_text, {})));
        return *defaults_.back();
      }
      throw unknown_name(path, default_text.has_value());
    }
    auto* node = const_cast<YamlNode*>(found);  // a part of root_, which is ours to change
    evaluate(*node);
    if (node->failed) {
      throw ExprError{ExprError::kNoOffset, {}, kSilent, {}};  // the cause is reported there
    }
    return *node;
  }

  ExprError unknown_name(const std::string& path, bool is_unset) {
    std::vector<std::string> names;
    if (const YamlNode* vars = root_.find("vars")) {
      for (const YamlNode& child : vars->children) {
        names.push_back(child.key);
      }
    }
    const auto nearest = nearest_name(path, names);
    ExprError error{
        ExprError::kNoOffset,
        is_unset ? fmt::format("`{}` is not set", path) : fmt::format("there is no `{}`", path),
        {},
        {}};
    error.help = nearest ? fmt::format("did you mean `{}`?", *nearest)
                         : std::string("names are those of `vars`, and paths such as fit.epochs");
    return error;
  }

  ExprValue value_of(YamlNode& node) {
    switch (node.kind) {
      case YamlNode::Kind::kNull:
        return ExprValue{};
      case YamlNode::Kind::kMap:
        throw ExprError{ExprError::kNoOffset, "a map has no value", {}, {}};
      case YamlNode::Kind::kList: {
        std::vector<ExprValue> list;
        for (YamlNode& child : node.children) {
          charge(1);
          evaluate(child);
          if (child.failed) {
            throw ExprError{ExprError::kNoOffset, {}, kSilent, {}};
          }
          list.push_back(value_of(child));
        }
        return ExprValue{std::move(list)};
      }
      default:
        break;
    }
    if (!node.quoted) {
      if (const auto integer = try_integer(node.text)) {
        return ExprValue{*integer};
      }
      if (const auto number = try_number(node.text)) {
        return ExprValue{*number};
      }
      if (node.text == "true" || node.text == "false") {
        return ExprValue{node.text == "true"};
      }
    }
    return ExprValue{node.text};
  }

  static YamlNode to_node(const ExprValue& value, const SourceLoc& loc) {
    if (const auto* list = std::get_if<std::vector<ExprValue>>(&value.data)) {
      YamlNode node{.kind = YamlNode::Kind::kList, .loc = loc};
      for (const ExprValue& entry : *list) {
        node.children.push_back(to_node(entry, loc));
      }
      return node;
    }
    if (std::holds_alternative<std::monostate>(value.data)) {
      return YamlNode{.explicit_null = true, .loc = loc};
    }
    return YamlNode::scalar(expr_text(value), loc);
  }

  // `${...}` within text; a text that is one reference takes the value's kind too.
  void interpolate(YamlNode& node) {
    const std::string text = node.text;
    std::string out;
    size_t at = 0;
    while (true) {
      const size_t begin = text.find("${", at);
      if (begin == std::string::npos) {
        break;
      }
      const size_t end = text.find('}', begin);
      if (end == std::string::npos) {
        throw ExprError{begin, "`${` is not closed", {}, {}};
      }
      out += text.substr(at, begin - at);
      const std::string inner = text.substr(begin + 2, end - begin - 2);
      at = end + 1;
      if (starts_with(inner, "env:")) {
        out += environment(inner.substr(4));
      } else if (begin == 0 && at == text.size()) {
        const YamlNode& found = target(inner);
        charge_node(found);
        replace(node, found);
        return;
      } else {
        out += expr_text(lookup(inner));
      }
      charge(out.size() > kMaxResult ? out.size() : 0);
    }
    replace(node, YamlNode::scalar(out + text.substr(at), node.loc));
  }

  // NAME or NAME,default
  static std::string environment(const std::string& reference) {
    const size_t comma = reference.find(',');
    const std::string name(trim(reference.substr(0, comma)));
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_char)) {
      throw ExprError{
          ExprError::kNoOffset, fmt::format("`{}` is no name of a variable", name), {}, {}};
    }
    const char* value = std::getenv(name.c_str());
    if (value != nullptr) {
      return checked_source("environment " + name, value)->text;
    }
    if (comma == std::string::npos) {
      throw ExprError{ExprError::kNoOffset,
                      fmt::format("environment variable `{}` is not set", name), "E131",
                      fmt::format("set it, or write ${{env:{},DEFAULT}}", name)};
    }
    return std::string(trim(reference.substr(comma + 1)));
  }

  YamlNode& root_;
  Diagnostics& diagnostics_;
  size_t spent_ = 0;
  std::vector<const YamlNode*> active_;  // being evaluated, outermost first
  std::vector<std::unique_ptr<YamlNode>> defaults_;
};

}  // namespace

void evaluate_expressions(YamlNode& root, Diagnostics& diagnostics) {
  Evaluator(root, diagnostics).evaluate_all(root);
}

}  // namespace meshtrain
