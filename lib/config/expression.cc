#include "config/expression.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include "base/text.h"
#include "config/bind.h"
#include "config/data_sizes.h"
#include "config/expression_parser.h"
#include "config/path.h"
#include "config/reader.h"
#include "config/scalars.h"
#include "config/schema.h"
#include "config/source.h"
#include "config/tensor_expression.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxResult = size_t{1} << 20;  // bytes of text and list entries, all together
constexpr int kMaxReferences = 100;             // references within each other

// Ends of names whose values nobody wants to find in a run's folder or in its report.
constexpr std::string_view kSecret[] = {"key", "token", "secret", "password"};

struct NamesRead {
  std::mutex mutex;
  std::set<std::string> names;
};

NamesRead& names_read() {
  static NamesRead read;
  return read;
}

// Code of an error whose cause has been reported where it is.
constexpr const char* kSilent = "silent";

DataSizesReader& reader_of_sizes() {
  static DataSizesReader reader = nullptr;
  return reader;
}

// The sizes of the data section; nothing where that is not right, which is reported elsewhere.
// `split`: fit.validation_split.
std::optional<DataSizes> read_sizes(const YamlNode& data, double split, std::optional<int64_t> seed,
                                    const std::string& first_file, const std::string& weights) {
  Diagnostics ignored;
  ConfigValue tree;
  const Section& section = *root_section().find("data")->section;
  tree.data = ConfigValue::Dict{{"data", Reader(ignored, {}).section(&data, section, data.loc)}};
  Config config;
  config.seed.value = seed.value_or(config.seed.value);
  section.store(&config.data, tree.field("data"), {folder_of(first_file), ignored});
  bind_data(tree, first_file, config, ignored);
  if (ignored.has_errors() || !config.data.train) {
    return std::nullopt;
  }
  return data_sizes_reader()(config.data, config.data.validation ? 0 : split, weights);
}

}  // namespace

void set_data_sizes_reader(DataSizesReader reader) {
  reader_of_sizes() = reader;
}

DataSizesReader data_sizes_reader() {
  return reader_of_sizes();
}

class Expressions::Evaluator : public ExprNames {
 public:
  Evaluator(YamlNode& root, Diagnostics& diagnostics, std::string first_file, std::string weights)
      : root_(root),
        diagnostics_(diagnostics),
        first_file_(std::move(first_file)),
        weights_(std::move(weights)) {}

  void evaluate_all(YamlNode& node, const LocalNames* locals) {
    const LocalNames* before = std::exchange(locals_, locals);
    if (node.is_scalar() && !node.is_final && node.key != kLambda &&
        is_loss_expression(node.text)) {
      make_lambda(node);
    }
    if (YamlNode* lambda = lambda_arguments(node)) {
      bind_lambda(*lambda);
    }
    evaluate(node);
    for (YamlNode& child : node.children) {
      evaluate_all(child, locals);
    }
    locals_ = before;
  }

  ExprValue lookup(const std::string& path) override { return value_of(target(path)); }

  ExprValue call(const std::string& name, const std::vector<ExprValue>& arguments) override {
    if (name == "vocabulary_size") {
      return data_size("vocabulary_size", "city", &DataSizes::vocabularies, arguments);
    }
    return name == "num_classes"
               ? data_size("num_classes", "output", &DataSizes::classes, arguments)
               : call_function(name, arguments);
  }

 private:
  // vocabulary_size("city"), vocabulary_size(): what data.train says, which is read once.
  ExprValue data_size(const char* function, const char* example,
                      std::map<std::string, int64_t> DataSizes::*member,
                      const std::vector<ExprValue>& arguments) {
    const auto* const given =
        arguments.empty() ? nullptr : std::get_if<std::string>(&arguments[0].data);
    if (arguments.size() > 1 || (given == nullptr && !arguments.empty())) {
      throw ExprError{
          ExprError::kNoOffset,
          fmt::format("`{0}` takes nothing or a name in quotes: {0}(\"{1}\")", function, example),
          {},
          {}};
    }
    const std::string name = given == nullptr ? "" : *given;
    const std::map<std::string, int64_t>& sizes = data_sizes().*member;
    const auto found = given == nullptr && sizes.size() == 1 ? sizes.begin() : sizes.find(name);
    if (found != sizes.end()) {
      return ExprValue{found->second};
    }
    std::vector<std::string> names;
    for (const auto& [known, size] : sizes) {
      names.push_back(known.empty() ? fmt::format("{}()", function)
                                    : fmt::format("{}(\"{}\")", function, known));
    }
    throw ExprError{ExprError::kNoOffset,
                    fmt::format("`data.train` has {}", name.empty() ? "none or several of these"
                                                                    : "no such `" + name + "`"),
                    {},
                    names.empty() ? "only columns of `categorical` or `one_hot`, texts, and labels "
                                    "that are classes are counted"
                                  : "there are " + join(names, ", ")};
  }

  // The text of a scalar in a map, after its expression; "" where there is none.
  std::string evaluated_text(const YamlNode* map, std::string_view key) {
    const YamlNode* const found = map == nullptr ? nullptr : map->find(key);
    if (found == nullptr || !found->is_scalar()) {
      return "";
    }
    YamlNode copy = *found;
    evaluate_all(copy, nullptr);
    return copy.text;
  }

  const DataSizes& data_sizes() {
    const YamlNode* const data = root_.find("data");
    if (sizes_) {
      return *sizes_;
    }
    if (is_reading_data_ || data == nullptr || data->find("train") == nullptr ||
        data_sizes_reader() == nullptr) {
      throw ExprError{
          ExprError::kNoOffset,
          is_reading_data_ ? "it depends on itself" : "there is no `data.train` to count",
          {},
          {}};
    }
    is_reading_data_ = true;
    YamlNode copy = *data;
    evaluate_all(copy, nullptr);
    is_reading_data_ = false;
    try {
      const YamlNode* const fit = root_.find("fit");
      const auto split = try_number(evaluated_text(fit, "validation_split"));
      sizes_ = read_sizes(copy, split.value_or(0), try_integer(evaluated_text(&root_, "seed")),
                          first_file_, weights_);
    } catch (const ConfigError& error) {
      if (!sizes_failed_) {  // said once, where the source stands
        diagnostics_.append(error.diagnostics());
      }
      sizes_failed_ = true;
    }
    if (!sizes_) {  // what is wrong with the source is found when it is bound
      throw ExprError{ExprError::kNoOffset, {}, kSilent, {}};
    }
    return *sizes_;
  }

  // The function of a Lambda stays as it is: its tensors are known to the graph only. The numbers
  // that it names stand beside it, so that places within it stay true.
  void bind_lambda(YamlNode& arguments) {
    YamlNode function = *arguments.find("function");
    arguments.find("function")->is_final = true;
    std::vector<std::string> names;
    try {
      names = free_names(arguments);
    } catch (const ExprError&) {
      return;  // reported where it is used, with what it belongs to
    }
    try {
      for (const std::string& name : names) {
        YamlNode* number = number_named(name);
        if (number == nullptr) {
          continue;
        }
        YamlNode& constants = arguments.at_or_add("constants", function.loc);
        if (constants.find(name) != nullptr) {
          continue;
        }
        constants.kind = YamlNode::Kind::kMap;
        YamlNode value = final_text(expr_text(value_of(*number)), number->loc);
        value.key = name;
        value.key_loc = function.loc;
        constants.children.push_back(std::move(value));
      }
    } catch (const ExprError& error) {
      report(function, error);
      arguments.find("function")->failed = true;
    }
  }

  // Of a block's arguments or of `vars`; nullptr for none.
  YamlNode* number_named(const std::string& name) {
    const auto parts = parse_path(name);
    if (!parts) {
      return nullptr;
    }
    std::vector<std::string> in_vars = *parts;
    in_vars.insert(in_vars.begin(), "vars");
    const bool is_known = local(*parts) != nullptr || find_path(root_, in_vars) != nullptr;
    return is_known ? &target(name) : nullptr;
  }

  static bool is_expression(const YamlNode& node) {
    return node.is_scalar() && !node.is_final &&
           (starts_with(node.text, "=") || node.text.find("${") != std::string::npos);
  }

  void evaluate(YamlNode& node) {
    if (!is_expression(node) || node.failed) {
      return;
    }
    if (std::find(active_.begin(), active_.end(), &node) != active_.end()) {
      throw ExprError{ExprError::kNoOffset, "it depends on itself", {}, {}};
    }
    if (active_.size() >= static_cast<size_t>(kMaxReferences)) {
      throw ExprError{ExprError::kNoOffset, "references lead too deep", {}, {}};
    }
    active_.push_back(&node);
    try {
      if (node.text[0] == '=') {
        const std::string text = node.text.substr(1);
        if (const YamlNode* named = is_name_alone(text) ? named_part(text) : nullptr) {
          copy_of(*named, node);
        } else {
          replace(node, to_node(evaluate_text(text, *this), node.loc));
        }
      } else {
        interpolate(node);
      }
    } catch (const ExprError& e) {
      report(node, e);
    }
    active_.pop_back();
  }

  // What a value of an expression cannot stand for: a map, text in quotes. nullptr for the rest.
  const YamlNode* named_part(const std::string& name) {
    try {
      const YamlNode& node = target(name);
      return node.is_map() || (node.is_scalar() && node.quoted) ? &node : nullptr;
    } catch (ExprError& e) {
      e.offset = 0;
      throw;
    }
  }

  static bool contains(const YamlNode& node, const YamlNode& part) {
    return &node == &part ||
           std::any_of(node.children.begin(), node.children.end(),
                       [&](const YamlNode& child) { return contains(child, part); });
  }

  // A part that holds an expression being evaluated would grow by its own copy without end.
  void copy_of(const YamlNode& found, YamlNode& node) {
    for (const YamlNode* active : active_) {
      if (contains(found, *active)) {
        throw ExprError{ExprError::kNoOffset, "it depends on itself", {}, {}};
      }
    }
    charge_node(found);
    replace(node, found);
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

  // The part of a local value that the path names, or nullptr.
  const YamlNode* local(const std::vector<std::string>& parts) const {
    const YamlNode* found = nullptr;
    for (const LocalNames* scope = locals_; scope != nullptr && found == nullptr;
         scope = scope->outer) {
      const auto it = std::find_if(scope->values.begin(), scope->values.end(),
                                   [&](const YamlNode& value) { return value.key == parts[0]; });
      found = it == scope->values.end() ? nullptr : &*it;
    }
    for (size_t i = 1; i < parts.size() && found != nullptr; ++i) {
      found = found->find(parts[i]);
    }
    return found;
  }

  // The node of a name: of a block's arguments, then of `vars`, then of the whole config. Evaluates
  // it.
  YamlNode& target(const std::string& path) {
    const auto parts = parse_path(path);
    if (!parts) {
      throw ExprError{ExprError::kNoOffset, fmt::format("`{}` is no path", path), {}, {}};
    }
    if (const YamlNode* own = local(*parts)) {
      if (own->failed) {
        throw ExprError{ExprError::kNoOffset, {}, kSilent, {}};
      }
      return *const_cast<YamlNode*>(own);  // evaluated: nothing in it will change
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
    const LocalNames* before = std::exchange(locals_, nullptr);
    evaluate(*node);
    locals_ = before;
    if (node->failed) {
      throw ExprError{ExprError::kNoOffset, {}, kSilent, {}};  // the cause is reported there
    }
    return *node;
  }

  ExprError unknown_name(const std::string& path, bool is_unset) {
    std::vector<std::string> names;
    for (const LocalNames* scope = locals_; scope != nullptr; scope = scope->outer) {
      for (const YamlNode& value : scope->values) {
        names.push_back(value.key);
      }
    }
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

  static YamlNode final_text(std::string text, const SourceLoc& loc) {
    YamlNode node = YamlNode::scalar(std::move(text), loc);
    node.is_final = true;
    return node;
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
    return final_text(expr_text(value), loc);
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
        copy_of(target(inner), node);
        return;
      } else {
        out += expr_text(lookup(inner));
      }
      charge(out.size() > kMaxResult ? out.size() : 0);
    }
    replace(node, final_text(out + text.substr(at), node.loc));
  }

  // NAME or NAME,default
  static std::string environment(const std::string& reference) {
    const size_t comma = reference.find(',');
    const std::string name(trim(reference.substr(0, comma)));
    if (!is_name_alone(name)) {
      throw ExprError{
          ExprError::kNoOffset, fmt::format("`{}` is no name of a variable", name), {}, {}};
    }
    if (std::any_of(std::begin(kSecret), std::end(kSecret),
                    [&](std::string_view end) { return ends_with(to_lower(name), end); })) {
      throw ExprError{ExprError::kNoOffset,
                      fmt::format("environment variable `{}` is not read: by its name it holds a "
                                  "secret, and the run's folder and report would show it",
                                  name),
                      "E131", "where it is none, give the variable another name"};
    }
    {
      const std::lock_guard lock(names_read().mutex);
      names_read().names.insert(name);
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
  std::string first_file_, weights_;
  std::optional<DataSizes> sizes_;
  bool is_reading_data_ = false, sizes_failed_ = false;
  size_t spent_ = 0;
  const LocalNames* locals_ = nullptr;
  std::vector<const YamlNode*> active_;  // being evaluated, outermost first
  std::vector<std::unique_ptr<YamlNode>> defaults_;
};

Expressions::Expressions(YamlNode& root, Diagnostics& diagnostics, std::string first_file,
                         std::string weights)
    : evaluator_(std::make_unique<Evaluator>(root, diagnostics, std::move(first_file),
                                             std::move(weights))) {}
Expressions::~Expressions() = default;

ExprValue Expressions::lookup(const std::string& name) {
  return evaluator_->lookup(name);
}

void Expressions::evaluate(YamlNode& node, const LocalNames* locals) {
  evaluator_->evaluate_all(node, locals);
}

std::vector<std::string> environment_read() {
  const std::lock_guard lock(names_read().mutex);
  return {names_read().names.begin(), names_read().names.end()};
}

}  // namespace meshtrain
