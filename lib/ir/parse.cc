// Reads the text form of a Graph; print.cc says what it looks like.
#include <cctype>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "ir/graph.h"
#include "ir/name_list.h"
#include "ir/op.h"
#include "ir/text_form.h"

namespace meshtrain {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const DeviceMesh& mesh) : text_(text), mesh_(mesh) {}

  Graph parse() {
    size_t begin = 0;
    while (begin < text_.size()) {
      const size_t end = std::min(text_.find('\n', begin), text_.size());
      ++line_number_;
      line_ = text_.substr(begin, end - begin);
      at_ = 0;
      begin = end + 1;
      skip_spaces();
      if (at_ < line_.size()) {
        parse_line();
        skip_spaces();
        if (at_ < line_.size()) {
          fail("nothing more was expected");
        }
      }
    }
    verify(graph_);
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ExitCode::kConfig,
                fmt::format("line {}, column {}: {}", line_number_, at_ + 1, reason));
  }

  // --- words
  // ---------------------------------------------------------------------------------------

  void skip_spaces() {
    while (at_ < line_.size() && line_[at_] == ' ') {
      ++at_;
    }
  }

  bool accept(std::string_view token) {
    skip_spaces();
    if (!starts_with(line_.substr(at_), token)) {
      return false;
    }
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) {
      fail(fmt::format("`{}` expected", token));
    }
  }

  // Characters up to the first that belongs to neither a name nor a number nor a path.
  std::string_view word() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < line_.size() &&
           (std::isalnum(static_cast<unsigned char>(line_[at_])) != 0 ||
            std::string_view("_/-+.:").find(line_[at_]) != std::string_view::npos)) {
      ++at_;
    }
    if (begin == at_) {
      fail("a word expected");
    }
    return line_.substr(begin, at_ - begin);
  }

  std::string name() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < line_.size() &&
           (std::isalnum(static_cast<unsigned char>(line_[at_])) != 0 || line_[at_] == '_')) {
      ++at_;
    }
    if (begin == at_) {
      fail("a name expected");
    }
    return std::string(line_.substr(begin, at_ - begin));
  }

  template <class T>
  T number(std::string_view text) const {
    const auto value = parse_number<T>(text);
    if (!value) {
      fail(fmt::format("`{}` is no number that fits here", text));
    }
    return *value;
  }

  int index() { return number<int>(word()); }

  std::string quoted_text() {
    expect("\"");
    std::string out;
    while (at_ < line_.size() && line_[at_] != '"') {
      if (line_[at_] == '\\' && at_ + 1 < line_.size()) {
        ++at_;
        out += line_[at_] == 'n' ? '\n' : line_[at_];
      } else {
        out += line_[at_];
      }
      ++at_;
    }
    if (at_ == line_.size()) {
      fail("the text has no closing quote");
    }
    ++at_;
    return out;
  }

  // A list of names; one with ", " in it is taken for two.
  std::string quoted_names() {
    std::string text = quoted_text();
    for (size_t at = 0; (at = text.find(", ", at)) != std::string::npos; ++at) {
      text.replace(at, 2, 1, kNameSeparator);
    }
    return text;
  }

  std::vector<int64_t> integers() {
    std::vector<int64_t> out;
    expect("[");
    if (accept("]")) {
      return out;
    }
    do {
      out.push_back(number<int64_t>(word()));
    } while (accept(","));
    expect("]");
    return out;
  }

  ValueType type() {
    const std::string dtype = name();
    const std::optional<DType> known = parse_short_dtype(dtype);
    if (!known) {
      fail(fmt::format("there is no dtype `{}`", dtype));
    }
    return {integers(), *known};
  }

  bool at_sharding() {
    skip_spaces();
    return at_ < line_.size() && line_[at_] == '[';
  }

  // From the opening bracket to its partner, and a partial combination where one follows.
  Sharding sharding() {
    const size_t begin = at_;
    int depth = 0;
    do {
      depth += line_[at_] == '[' ? 1 : line_[at_] == ']' ? -1 : 0;
      ++at_;
    } while (depth > 0 && at_ < line_.size());
    for (Combine combine : {Combine::kSum, Combine::kMax, Combine::kMin}) {
      const std::string opening = fmt::format(" {}(", combine_name(combine));
      if (starts_with(line_.substr(at_), opening)) {
        at_ = std::min(line_.find(')', at_), line_.size() - 1) + 1;
        break;
      }
    }
    try {
      return parse_sharding(line_.substr(begin, at_ - begin), mesh_);
    } catch (const Error& error) {
      fail(error.what());
    }
  }

  // --- lines
  // ---------------------------------------------------------------------------------------

  void parse_line() {
    if (accept("variable ")) {
      parse_variable();
    } else if (accept("output ")) {
      Output output;
      output.name = quoted_text();
      expect("=");
      output.value = value();
      graph_.outputs.push_back(std::move(output));
    } else if (accept("update ")) {
      Update update;
      update.variable = index();
      expect("=");
      update.value = value();
      graph_.updates.push_back(update);
    } else {
      parse_node();
    }
  }

  void parse_variable() {
    Variable variable;
    variable.path = quoted_text();
    expect(":");
    const ValueType declared = type();
    variable.shape = declared.shape;
    variable.dtype = declared.dtype;
    const std::string role = name();
    const std::optional<VariableRole> known = parse_role(role);
    if (!known) {
      fail(fmt::format("there is no role `{}`", role));
    }
    variable.role = *known;
    variable.trainable = accept("trainable");
    if (accept("follows ")) {
      variable.follows = index();
    }
    for (const auto& [layout, member] : kLayouts) {
      if (accept(layout)) {
        skip_spaces();
        variable.layout.*member = sharding();
      }
    }
    graph_.variables.push_back(std::move(variable));
  }

  // A value defined above.
  ValueId value() {
    expect("%");
    const ValueId id = index_of_value();
    if (id < 0 || id >= static_cast<ValueId>(graph_.values.size())) {
      fail(fmt::format("%{} is not defined above", id));
    }
    return id;
  }

  ValueId index_of_value() {
    const size_t begin = at_;
    while (at_ < line_.size() && std::isdigit(static_cast<unsigned char>(line_[at_])) != 0) {
      ++at_;
    }
    return number<ValueId>(line_.substr(begin, at_ - begin));
  }

  AttrValue attr() {
    skip_spaces();
    const char first = at_ < line_.size() ? line_[at_] : '\0';
    if (first == '"') {
      return quoted_text();
    }
    if (first == '[') {
      return integers();
    }
    const std::string_view text = word();
    if (text.find_first_not_of("-0123456789") == std::string_view::npos) {
      return number<int64_t>(text);
    }
    return number<double>(text);
  }

  void parse_node() {
    Node node;
    std::vector<Value> results;
    const auto first = static_cast<ValueId>(graph_.values.size());
    do {
      expect("%");
      const ValueId id = index_of_value();
      if (id != first + static_cast<ValueId>(results.size())) {
        fail(fmt::format("%{} defined where %{} is next", id, first + results.size()));
      }
      expect(":");
      ValueType declared = type();
      Value value;
      value.shape = std::move(declared.shape);
      value.dtype = declared.dtype;
      value.producer = static_cast<NodeId>(graph_.nodes.size());
      value.result_index = static_cast<int>(results.size());
      node.outputs.push_back(id);
      results.push_back(std::move(value));
    } while (accept(","));
    expect("=");
    parse_application(node);
    check_types(node, results);
    parse_results(results);
    for (Value& value : results) {
      graph_.values.push_back(std::move(value));
    }
    graph_.nodes.push_back(std::move(node));
  }

  void parse_application(Node& node) {
    const std::string op = name();
    try {
      node.op = &find_op(op);
    } catch (const InternalError&) {
      fail(fmt::format("there is no op `{}`", op));
    }
    expect("(");
    if (!accept(")")) {
      do {
        node.inputs.push_back(value());
      } while (accept(","));
      expect(")");
    }
    if (accept("{")) {
      do {
        const std::string key = name();
        expect("=");
        const bool is_list = key == "of" || key == "cause";
        if (!node.attrs.emplace(key, is_list ? quoted_names() : attr()).second) {
          fail(fmt::format("attribute `{}` is there twice", key));
        }
      } while (accept(","));
      expect("}");
    }
    expect("@");
    node.path = at_ < line_.size() && line_[at_] == '"' ? quoted_text() : std::string(word());
    const std::string phase = name();
    const std::optional<Phase> known = parse_phase(phase);
    if (!known) {
      fail(fmt::format("there is no phase `{}`", phase));
    }
    node.phase = *known;
  }

  void check_types(const Node& node, const std::vector<Value>& results) const {
    std::vector<ValueType> operands;
    for (ValueId input : node.inputs) {
      operands.push_back({graph_.shape(input), graph_.dtype(input)});
    }
    std::vector<ValueType> types;
    try {
      types = node.op->infer(node, operands);
    } catch (const InternalError& error) {
      fail(error.what());
    }
    bool equal = types.size() == results.size();
    for (size_t i = 0; equal && i < types.size(); ++i) {
      equal = types[i] == ValueType{results[i].shape, results[i].dtype};
    }
    if (!equal) {
      std::string text;
      for (const ValueType& type : types) {
        text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", short_dtype(type.dtype),
                            fmt::join(type.shape, ","));
      }
      fail(fmt::format("the op gives {}", text));
    }
  }

  void parse_results(std::vector<Value>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      if (i > 0 && !accept(";")) {
        return;
      }
      if (at_sharding()) {
        results[i].sharding = sharding();
      }
      if (accept("from ")) {
        results[i].sharding_origin = quoted_names();
      }
      if (accept("d(")) {
        results[i].cotangent_of = value();
        expect(")");
      }
    }
  }

  std::string_view text_;
  const DeviceMesh& mesh_;
  Graph graph_;
  std::string_view line_;
  size_t at_ = 0;
  int line_number_ = 0;
};

}  // namespace

Graph parse_graph(std::string_view text, const DeviceMesh& mesh) {
  return Parser(text, mesh).parse();
}

}  // namespace meshtrain
