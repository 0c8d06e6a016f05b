#include "config/reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/suggest.h"
#include "base/text.h"
#include "config/cells.h"
#include "config/other_names.h"
#include "config/precision.h"
#include "config/scalars.h"
#include "config/source.h"

namespace meshtrain {
namespace {

constexpr const char* kTopLevel = "the top level";

std::string limit_text(double value) {
  return value == kMaxSize ? "2^31-1" : format_shortest(value);
}

// "at least 1", "above 0 and at most 1"
std::string range_text(const Spec& spec) {
  std::string out;
  if (spec.minimum == spec.maximum) {
    return limit_text(spec.minimum);
  }
  if (std::isfinite(spec.minimum) && std::isfinite(spec.maximum) && !spec.above_minimum &&
      !spec.below_maximum) {
    return fmt::format("from {} to {}", limit_text(spec.minimum), limit_text(spec.maximum));
  }
  if (std::isfinite(spec.minimum)) {
    out = (spec.above_minimum ? "above " : "at least ") + limit_text(spec.minimum);
  }
  if (std::isfinite(spec.maximum)) {
    out += (out.empty() ? "" : " and ") + std::string(spec.below_maximum ? "below " : "at most ") +
           limit_text(spec.maximum);
  }
  return out;
}

}  // namespace

std::string kind_name(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
    case YamlNode::Kind::kNull:
      return "null";
    default:
      return fmt::format("`{}`", node.text);
  }
}

Diagnostic& Reader::wrong(const char* code, const SourceLoc& loc, const Spec& spec,
                          const std::string& owner, std::string what) {
  return diagnostics_.error(code, loc,
                            owner == kTopLevel
                                ? fmt::format("`{}` {}", spec.name, what)
                                : fmt::format("`{}` of {} {}", spec.name, owner, what));
}

bool Reader::is_python_none(const YamlNode& node) {
  if (!node.is_plain("None")) {
    return false;
  }
  diagnostics_.warning("W114", node.loc, "`None` is read as `null`").with_label("write `null`");
  return true;
}

namespace {

// "`distribution`" without its quotes.
std::string_view plain_owner(std::string_view owner) {
  return owner.size() > 2 && owner.front() == '`' ? owner.substr(1, owner.size() - 2) : owner;
}

}  // namespace

Diagnostic& Reader::unknown_key(const YamlNode& child, const std::string& owner, bool is_class,
                                const std::vector<std::string>& names) {
  Diagnostic& d =
      diagnostics_.error("E111", child.key_loc,
                         fmt::format("unknown {} `{}` {} {}", is_class ? "argument" : "key",
                                     child.key, is_class ? "of" : "in", owner));
  const auto elsewhere = is_class ? std::nullopt : section_with_key(child.key);
  // A name of another program may be one of here, only spelled otherwise.
  const bool is_slip = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return bare(name) == bare(child.key);
  });
  const std::string other = is_slip ? "" : instead_of_key(plain_owner(owner), child.key);
  if (starts_with(child.key, "~")) {
    d.help("`~KEY` removes a key on the command line; in a file `KEY: null` does");
  } else if (elsewhere) {
    d.help(fmt::format("there is `{}`", *elsewhere));
  } else if (!other.empty()) {
    d.help(other);
  } else {
    suggest(d, child.key, names);
  }
  if (child.is_null() && !child.key.empty() &&
      child.key.find_first_not_of("0123456789") == std::string::npos) {
    d.help("a comma separates entries here; a decimal number is written `1.5`");
  }
  d.notes.push_back(
      fmt::format("{} here: {}", is_class ? "arguments" : "keys", known_names(child.key, names)));
  return d;
}

void Reader::check_range(double value, const YamlNode& node, const Spec& spec,
                         const std::string& owner) {
  const bool too_low = spec.above_minimum ? value <= spec.minimum : value < spec.minimum;
  const bool too_high = spec.below_maximum ? value >= spec.maximum : value > spec.maximum;
  if (too_low || too_high) {
    wrong("E113", node.loc, spec, owner,
          fmt::format("must be {}, not {}", range_text(spec), node.text));
  }
}

ConfigValue Reader::fallback(const Spec& spec, const SourceLoc& loc) {
  if (!spec.is_required || spec.kind == ValueKind::kSection) {
    return default_value(spec, loc);
  }
  switch (spec.kind) {
    case ValueKind::kInt:
    case ValueKind::kIntOrList:
      return make_value(int64_t{1}, loc);
    case ValueKind::kFloat:
    case ValueKind::kFloatOrList:
    case ValueKind::kFloatOrObject:
      return make_value(1.0, loc);
    case ValueKind::kBool:
      return make_value(false, loc);
    case ValueKind::kShape:
      return make_value(ConfigValue::List{make_value(int64_t{1}, loc)}, loc);
    case ValueKind::kText:
    case ValueKind::kEnum:
    case ValueKind::kPath:
    case ValueKind::kPaths:
    case ValueKind::kActivation:
      return make_value(std::string(), loc);
    case ValueKind::kObjectList:
      return make_value(ConfigValue::List{}, loc);
    default:
      return make_value(std::monostate{}, loc);
  }
}

ConfigValue Reader::default_value(const Spec& spec, const SourceLoc& owner_loc) {
  const std::string& text = spec.default_text;
  ConfigValue out{{}, owner_loc, true};
  if (spec.kind == ValueKind::kSection) {
    return section(nullptr, *spec.section, owner_loc);
  }
  if (spec.kind == ValueKind::kMap) {
    out.data = ConfigValue::Dict{};
    return out;
  }
  if (text == "null" || text.empty()) {
    return out;
  }
  const auto integer = try_integer(text);
  switch (spec.kind) {
    case ValueKind::kBool:
      out.data = text == "true";
      break;
    case ValueKind::kInt:
    case ValueKind::kIntOrList:
      out.data = integer.value();
      break;
    case ValueKind::kFloat:
    case ValueKind::kFloatOrList:
    case ValueKind::kFloatOrObject:
    case ValueKind::kFloatPerOutput:
      out.data = try_number(text).value();
      break;
    case ValueKind::kObject: {
      out = object_value(YamlNode::scalar(text, owner_loc), spec.category);
      out.is_default = true;
      break;
    }
    case ValueKind::kShape: {  // "4x2"
      out = shape(YamlNode::scalar(text, owner_loc), spec, "");
      out.is_default = true;
      break;
    }
    default:
      out.data = text;
  }
  return out;
}

ConfigValue Reader::missing(const YamlNode& node, const Spec& spec, const std::string& owner) {
  switch (spec.kind) {
    case ValueKind::kSection:
      return section(&node, *spec.section, node.loc);
    case ValueKind::kMap:
      return make_value(ConfigValue::Dict{}, node.loc);
    case ValueKind::kAny:
    case ValueKind::kUnsupported:
      return make_value(std::monostate{}, node.loc);
    default:
      break;
  }
  if (!spec.is_nullable) {
    wrong("E112", node.loc, spec, owner, "has no value");
    return fallback(spec, node.loc);
  }
  return make_value(std::monostate{}, node.loc);
}

ConfigValue Reader::value(const YamlNode& node, const Spec& spec, const std::string& owner) {
  ConfigValue out = given_value(node, spec, owner);
  out.is_default = out.is_default || is_resolved_default(out, spec);
  return out;
}

// False for lists, maps and objects.
bool are_same_scalars(const ConfigValue& a, const ConfigValue& b) {
  return a.data.index() == b.data.index() &&
         (a.is_null() || (a.is_bool() && a.boolean() == b.boolean()) ||
          (a.is_number() && a.number() == b.number()) ||
          (a.is_string() && a.string() == b.string()));
}

// Whether the value of a run's resolved config is the default that nobody wrote.
bool Reader::is_resolved_default(const ConfigValue& value, const Spec& spec) {
  return !spec.is_required && may_be_default(value.loc) &&
         are_same_scalars(value, default_value(spec, value.loc));
}

ConfigValue Reader::given_value(const YamlNode& node, const Spec& spec, const std::string& owner) {
  if (node.failed) {
    return fallback(spec, node.loc);
  }
  if (node.is_null()) {
    return missing(node, spec, owner);
  }
  switch (spec.kind) {
    case ValueKind::kAny:
      return make_value(std::monostate{}, node.loc);
    case ValueKind::kSection:
      return section(&node, *spec.section, node.loc);
    case ValueKind::kMap:
      return map(node, spec, owner);
    case ValueKind::kShape:
      return shape(node, spec, owner);
    case ValueKind::kIntOrList:
    case ValueKind::kFloatOrList:
      return number_list(node, spec, owner);
    case ValueKind::kTextList:
    case ValueKind::kNames:
    case ValueKind::kPaths:
      return texts(node, spec, owner);
    case ValueKind::kLayout:
      return layout(node, owner);
    case ValueKind::kActivation:
      return activation(node, spec, owner);
    case ValueKind::kObject:
      return object_value(takes_cells(spec) && node.is_list() ? stacked_cells(node) : node,
                          spec.category);
    case ValueKind::kFloatOrObject:
      return float_or_object(node, spec, owner);
    case ValueKind::kObjectList:
      return object_list(node, spec, owner);
    case ValueKind::kObjectPerOutput:
    case ValueKind::kObjectsPerOutput:
      return per_output(node, spec, owner);
    case ValueKind::kFloatPerOutput:
      return floats_per_output(node, spec, owner);
    case ValueKind::kSlice:
      return slice(node, spec, owner);
    case ValueKind::kUnsupported:
      if (!node.is_plain("false") && !(!node.is_scalar() && node.children.empty())) {
        diagnostics_
            .error("E111", node.key_loc ? node.key_loc : node.loc,
                   owner == kTopLevel
                       ? fmt::format("`{}` is not in this release", spec.name)
                       : fmt::format("`{}` of {} is not in this release", spec.name, owner))
            .help(fmt::format("leave `{}` out", spec.name));
      }
      return make_value(std::monostate{}, node.loc);
    default:
      return scalar(node, spec, owner);
  }
}

ConfigValue Reader::scalar(const YamlNode& node, const Spec& spec, const std::string& owner) {
  if (node.failed) {
    return fallback(spec, node.loc);
  }
  if (node.is_plain("None")) {
    wrong("E114", node.loc, spec, owner, "is `None`, which YAML does not know")
        .with_label("write `null`");
    return fallback(spec, node.loc);
  }
  const bool is_text = spec.kind == ValueKind::kText || spec.kind == ValueKind::kPath ||
                       spec.kind == ValueKind::kEnum;
  const char* wanted = spec.kind == ValueKind::kBool    ? "true or false"
                       : spec.kind == ValueKind::kInt   ? "an integer"
                       : spec.kind == ValueKind::kFloat ? "a number"
                                                        : "text";
  if (!node.is_scalar()) {
    wrong("E112", node.loc, spec, owner,
          fmt::format("must be {}, not {}", wanted, kind_name(node)));
    return fallback(spec, node.loc);
  }
  if (node.quoted && !is_text) {
    Diagnostic& d =
        wrong("E112", node.loc, spec, owner, fmt::format("must be {}, not text in quotes", wanted));
    if (try_number(node.text) || node.text == "true" || node.text == "false") {
      d.with_label(fmt::format("write `{}` without quotes", node.text));
    }
    return fallback(spec, node.loc);
  }
  switch (spec.kind) {
    case ValueKind::kInt:
      return integer(node, spec, owner);
    case ValueKind::kFloat:
      return number(node, spec, owner);
    case ValueKind::kEnum:
      return choice(node, spec, owner);
    case ValueKind::kBool: {
      const ScalarResult<bool> result = parse_boolean(node.text);
      if (!result.value) {
        wrong(result.problem.code.c_str(), node.loc, spec, owner, result.problem.message)
            .with_label(result.problem.label);
        return fallback(spec, node.loc);
      }
      return make_value(*result.value, node.loc);
    }
    default:
      if (node.text.empty()) {
        wrong("E112", node.loc, spec, owner, "is empty");
      }
      return make_value(node.text, node.loc);
  }
}

ConfigValue Reader::integer(const YamlNode& node, const Spec& spec, const std::string& owner) {
  const ScalarResult<int64_t> result = parse_integer(node.text);
  if (!result.value) {
    Diagnostic& d =
        wrong(result.problem.code.c_str(), node.loc, spec, owner, result.problem.message);
    d.with_label(result.problem.label);
    const std::string_view written =
        node.loc.file == nullptr ? "" : node.loc.file->line(node.loc.line);
    if (written.find('=') != std::string_view::npos &&
        written.find('/') != std::string_view::npos && try_number(node.text)) {
      d.help("`//` divides without a remainder");
    }
    return fallback(spec, node.loc);
  }
  check_range(static_cast<double>(*result.value), node, spec, owner);
  return make_value(*result.value, node.loc);
}

ConfigValue Reader::number(const YamlNode& node, const Spec& spec, const std::string& owner) {
  const ScalarResult<double> result = parse_number(node.text);
  if (!result.value) {
    wrong(result.problem.code.c_str(), node.loc, spec, owner, result.problem.message)
        .with_label(result.problem.label);
    return fallback(spec, node.loc);
  }
  check_range(*result.value, node, spec, owner);
  return make_value(*result.value, node.loc);
}

ConfigValue Reader::choice(const YamlNode& node, const Spec& spec, const std::string& owner) {
  if (std::find(spec.allowed.begin(), spec.allowed.end(), node.text) != spec.allowed.end()) {
    return make_value(node.text, node.loc);
  }
  const bool is_tab = node.text == "\t" || node.text == "\\t";  // in double, in single quotes
  if (is_tab && std::find(spec.allowed.begin(), spec.allowed.end(), "tab") != spec.allowed.end()) {
    return make_value(std::string("tab"), node.loc);
  }
  Diagnostic& d = wrong("E113", node.loc, spec, owner,
                        fmt::format("must be {}, not `{}`", join(spec.allowed, " or "), node.text));
  if (const std::string other = instead_of_policy(node.text);
      !other.empty() && spec.allowed == dtype_policy_names()) {
    d.help(other);
  } else if (const std::string word = instead_of_word(node.text); !word.empty()) {
    d.help(word);
  } else if (!try_number(node.text)) {
    suggest(d, node.text, spec.allowed);
  }
  return fallback(spec, node.loc);
}

ConfigValue Reader::activation(const YamlNode& node, const Spec& spec, const std::string& owner) {
  if (node.is_plain("None")) {
    return scalar(node, spec, owner);
  }
  if (node.is_scalar()) {
    if (const ClassSpec* found = find_class(Category::kActivation, node.text)) {
      for (const Spec& arg : found->args) {
        if (arg.is_required) {
          wrong("E112", node.loc, spec, owner,
                fmt::format("needs arguments: `{{{}: {{{}: ...}}}}`", node.text, arg.name));
        }
      }
      return make_value(found->name, node.loc);
    }
  }
  return object_value(node, Category::kActivation);
}

ConfigValue Reader::float_or_object(const YamlNode& node, const Spec& spec,
                                    const std::string& owner) {
  const bool is_class = node.is_scalar() && find_class(spec.category, node.text) != nullptr;
  if (node.is_map() || is_class) {
    return object_value(node, spec.category);
  }
  Spec plain = spec;
  plain.kind = ValueKind::kFloat;
  const int problems = diagnostics_.num_errors();
  const ConfigValue out = scalar(node, plain, owner);
  if (spec.floats_only && node.is_scalar() && try_integer(node.text) &&
      diagnostics_.num_errors() == problems) {
    wrong("E112", node.loc, spec, owner,
          fmt::format("must be a float, as Keras wants it; write {}.0", node.text));
  }
  return out;
}

ConfigValue Reader::section(const YamlNode* node, const Section& section, const SourceLoc& parent) {
  const std::string owner =
      section.path.empty() ? std::string(kTopLevel) : fmt::format("`{}`", section.path);
  const bool is_given = node != nullptr && !node->is_null();
  ConfigValue out{ConfigValue::Dict{}, is_given ? node->loc : parent, !is_given};
  if (is_given && !node->is_map()) {
    Diagnostic& d = diagnostics_.error(
        "E112", node->loc,
        fmt::format("{} must be a map of keys, not {}", owner, kind_name(*node)));
    std::vector<std::string> entries;  // [4, 2] is meant as 4x2
    for (const YamlNode& entry : node->children) {
      entries.push_back(entry.text);
    }
    const bool is_mesh = node->is_list() && starts_with(section.path, "distribution");
    const std::string text = is_mesh ? join(entries, "x") : node->text;
    if (const std::string other = instead_of_section(section.path, text); !other.empty()) {
      d.help(other);
    }
    node = nullptr;
  }
  std::vector<const YamlNode*> given(section.fields.size(), nullptr);
  if (node != nullptr) {
    for (const YamlNode& child : node->children) {
      const Spec* field = section.find(child.key);
      if (field == nullptr) {
        unknown_key(child, owner, false, section.names());
      } else {
        given[field - section.fields.data()] = &child;
      }
    }
  }
  auto& dict = std::get<ConfigValue::Dict>(out.data);
  for (size_t i = 0; i < section.fields.size(); ++i) {
    const Spec& field = section.fields[i];
    if (field.kind == ValueKind::kUnsupported) {
      if (given[i] != nullptr) {
        value(*given[i], field, owner);
      }
      continue;
    }
    if (given[i] != nullptr) {
      dict.emplace_back(field.name, value(*given[i], field, owner));
      continue;
    }
    if (field.is_required && node != nullptr) {
      wrong("E112", out.loc, field, owner, "is missing");
    }
    dict.emplace_back(field.name,
                      field.is_required ? fallback(field, out.loc) : default_value(field, out.loc));
  }
  return out;
}

}  // namespace meshtrain
