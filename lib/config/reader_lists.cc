// Reader: values with several parts (shapes, lists, layouts, maps).
#include <algorithm>

#include "base/text.h"
#include "config/other_names.h"
#include "config/reader.h"
#include "config/scalars.h"
#include "config/split.h"

namespace meshtrain {
namespace {

// "2x4" or "2 x 4" as {"2", "4"}; nothing when it is written otherwise.
std::vector<std::string> split_by_x(const std::string& text) {
  std::vector<std::string> parts = split(text, 'x');
  for (std::string& part : parts) {  // "2 x 4"
    part = std::string(trim(part));
  }
  const bool fits = parts.size() > 1 &&
                    std::all_of(parts.begin(), parts.end(),
                                [](const auto& part) { return try_integer(part).has_value(); });
  return fits ? parts : std::vector<std::string>{};
}

// "[2, 4]": what the help of a shape begins with, or any other.
std::string example_of(const Spec& spec) {
  return starts_with(spec.help, "[") ? spec.help.substr(0, spec.help.find(']') + 1) : "[28, 28, 1]";
}

// An entry of a list or map of `kind`: it has a value of its own, never the default of the whole.
Spec entry_of(const Spec& whole, ValueKind kind) {
  Spec entry = whole;
  entry.kind = kind;
  entry.is_nullable = false;
  entry.is_required = true;
  return entry;
}

}  // namespace

ConfigValue Reader::slice(const YamlNode& node, const Spec& spec, const std::string& owner) {
  if (node.is_list() && node.loc) {  // `[:100]` without quotes: YAML reads a list
    const std::string_view line = node.loc.file->line(node.loc.line);
    const auto begin = static_cast<size_t>(node.loc.column - 1);
    const size_t end = line.find(']', begin);
    if (begin < line.size() && line[begin] == '[' && end != std::string_view::npos) {
      if (const auto slice = normal_slice(std::string(line.substr(begin, end + 1 - begin)))) {
        return make_value(*slice, node.loc);
      }
    }
  }
  if (node.is_scalar()) {
    const std::string_view text = trim(node.text);
    const bool is_bare = !starts_with(text, "[");
    if (const auto slice = normal_slice(is_bare ? fmt::format("[{}]", text) : std::string(text))) {
      return make_value(*slice, node.loc);
    }
  }
  Diagnostic& d = wrong("E112", node.loc, spec, owner,
                        "must be text such as \"[:9000]\", \"[90%:]\" or \"[100:200]\"");
  if (!node.is_scalar()) {
    d.help("write it in quotes: without them YAML reads a list");
  }
  return fallback(spec, node.loc);
}

bool Reader::is_tuple(const YamlNode& node, const Spec& spec, const std::string& owner) {
  const auto list = node.is_scalar() && !node.quoted ? list_of_tuple(node.text) : std::nullopt;
  if (list) {
    wrong("E112", node.loc, spec, owner, fmt::format("must be a list, not `{}`", node.text))
        .with_label("write " + *list);
  }
  return list.has_value();
}

ConfigValue Reader::shape_entry(const YamlNode& node, const Spec& spec, const std::string& owner) {
  if (node.failed) {
    return make_value(int64_t{1}, node.loc);
  }
  if (node.is_null() || is_python_none(node)) {
    if (!spec.allows_unknown) {
      wrong("E115", node.loc, spec, owner, "must have known sizes; `null` is not allowed here");
    }
    return make_value(std::monostate{}, node.loc);
  }
  if (!node.is_scalar() || node.quoted) {
    wrong("E112", node.loc, spec, owner,
          fmt::format("must be a list of integers, such as {}", example_of(spec)));
    return make_value(int64_t{1}, node.loc);
  }
  const ScalarResult<int64_t> result = parse_integer(node.text);
  if (!result.value && result.problem.code == "E112" && !try_number(node.text)) {
    wrong("E112", node.loc, spec, owner,
          fmt::format("must be a list of integers such as {}, or 2x4; not `{}`", example_of(spec),
                      node.text));
    return make_value(int64_t{1}, node.loc);
  }
  if (!result.value) {
    wrong(result.problem.code.c_str(), node.loc, spec, owner, result.problem.message)
        .with_label(result.problem.label);
    return make_value(int64_t{1}, node.loc);
  }
  const bool infers = spec.allows_infer && *result.value == -1;
  if (!infers && *result.value < 1) {
    const bool is_size = spec.accepted.empty();
    Diagnostic& d = wrong("E115", node.loc, spec, owner,
                          is_size ? fmt::format("has size {}; a size is at least 1", *result.value)
                                  : fmt::format("has the entry {}", *result.value));
    if (!is_size) {
      d.help("it takes " + spec.accepted);
    }
  } else if (*result.value > static_cast<int64_t>(kMaxSize)) {
    wrong("E115", node.loc, spec, owner, "has a size above 2^31-1");
  }
  return make_value(*result.value, node.loc);
}

ConfigValue Reader::shape(const YamlNode& node, const Spec& spec, const std::string& owner) {
  if (node.is_plain("None") && spec.is_nullable) {
    is_python_none(node);
    return make_value(std::monostate{}, node.loc);
  }
  ConfigValue::List list;
  if (node.is_list()) {
    for (const YamlNode& child : node.children) {
      list.push_back(shape_entry(child, spec, owner));
    }
  } else if (node.is_scalar() && !split_by_x(node.text).empty()) {
    for (const std::string& part : split_by_x(node.text)) {
      list.push_back(shape_entry(YamlNode::scalar(part, node.loc), spec, owner));
    }
  } else if (is_tuple(node, spec, owner)) {
    list.push_back(make_value(int64_t{1}, node.loc));
  } else {
    list.push_back(shape_entry(node, spec, owner));
  }
  ConfigValue out = make_value(std::move(list), node.loc);
  check_shape(out, spec, owner);
  return out;
}

void Reader::check_shape(const ConfigValue& value, const Spec& spec, const std::string& owner) {
  const ConfigValue::List& list = value.list();
  if (list.empty() && !spec.allows_empty) {
    wrong("E115", value.loc, spec, owner, "is empty");
  }
  if (list.size() > static_cast<size_t>(kMaxRank)) {
    wrong("E115", value.loc, spec, owner,
          fmt::format("has {} dimensions; at most {} are possible", list.size(), kMaxRank));
  }
  int64_t product = 1;
  int num_inferred = 0;
  for (const ConfigValue& entry : list) {
    const int64_t size = entry.is_int() ? std::max<int64_t>(1, entry.integer()) : 1;
    num_inferred += entry.is_int() && entry.integer() == -1 ? 1 : 0;
    if (product > kMaxElements / size) {
      wrong("E115", value.loc, spec, owner, "has more than 2^48 elements");
      return;
    }
    product *= size;
  }
  if (spec.allows_infer && num_inferred > 1) {
    wrong("E115", value.loc, spec, owner, "has more than one -1");
  }
}

ConfigValue Reader::number_list(const YamlNode& node, const Spec& spec, const std::string& owner) {
  const ValueKind kind = spec.kind == ValueKind::kIntOrList ? ValueKind::kInt : ValueKind::kFloat;
  if (!node.is_list()) {
    if (is_tuple(node, spec, owner)) {
      return fallback(spec, node.loc);
    }
    Spec alone = spec;
    alone.kind = kind;
    return scalar(node, alone, owner);
  }
  const Spec element = entry_of(spec, kind);
  ConfigValue::List list;
  for (const YamlNode& child : node.children) {
    if (child.is_null()) {
      wrong("E112", child.loc, spec, owner, "has an empty entry");
    } else if (child.is_list() && (spec.kind == ValueKind::kFloatOrList || spec.allows_nested)) {
      list.push_back(number_list(child, spec, owner));
    } else {
      list.push_back(scalar(child, element, owner));
    }
  }
  if (list.empty()) {
    wrong("E112", node.loc, spec, owner, "is an empty list");
  }
  return make_value(std::move(list), node.loc);
}

ConfigValue Reader::texts(const YamlNode& node, const Spec& spec, const std::string& owner) {
  const Spec element = entry_of(spec, ValueKind::kText);
  const auto read = [&](const YamlNode& child) {
    if (child.is_null()) {
      wrong("E112", child.loc, spec, owner, "has an empty entry");
      return make_value(std::string(), child.loc);
    }
    return scalar(child, element, owner);
  };
  if (node.is_scalar()) {
    ConfigValue one = read(node);
    if (spec.kind != ValueKind::kTextList || one.is_null()) {
      return one;
    }
    const SourceLoc loc = one.loc;
    return make_value(ConfigValue::List{std::move(one)}, loc);
  }
  if (node.is_list()) {
    ConfigValue::List list;
    for (const YamlNode& child : node.children) {
      list.push_back(read(child));
    }
    if (list.empty()) {
      wrong("E112", node.loc, spec, owner, "is an empty list");
    }
    return make_value(std::move(list), node.loc);
  }
  if (spec.kind != ValueKind::kNames) {
    wrong("E112", node.loc, spec, owner,
          fmt::format("must be {}, not a map", spec.kind == ValueKind::kPaths
                                                   ? "a path, or a list of paths"
                                                   : "a list of names"));
    return fallback(spec, node.loc);
  }
  ConfigValue::Dict dict;
  for (const YamlNode& child : node.children) {
    const bool is_nested = spec.allows_nested && child.is_list();
    if (child.is_list() && !is_nested) {
      Diagnostic& d = wrong("E112", child.loc, spec, owner,
                            fmt::format("takes one name for `{}`, not a list", child.key));
      if (const std::string help = instead_of_key(owner, child.key); !help.empty()) {
        d.help(help);
      }
      dict.emplace_back(child.key, make_value(std::string(), child.loc));
      continue;
    }
    dict.emplace_back(child.key, is_nested
                                     ? texts(child, entry_of(spec, ValueKind::kTextList), owner)
                                     : read(child));
  }
  return make_value(std::move(dict), node.loc);
}

ConfigValue Reader::layout_entry(const YamlNode& node, const std::string& key) {
  if (node.failed || node.is_null() || is_python_none(node)) {
    return make_value(std::monostate{}, node.loc);
  }
  if (node.is_scalar()) {
    return make_value(node.text, node.loc);
  }
  ConfigValue::List axes;
  for (const YamlNode& child : node.children) {
    if (node.is_list() && child.is_scalar() && !is_python_none(child)) {
      axes.push_back(make_value(child.text, child.loc));
    } else {
      diagnostics_
          .error(
              "E112", child.loc,
              fmt::format("an entry of the layout of `{}` must be null, an axis, or a list of axes",
                          key))
          .help("write [null, model] or [[data, model], null]");
    }
  }
  return make_value(std::move(axes), node.loc);
}

// A tuple of axes, as JAX writes it, is text with its brackets: [null, (data, model)] has three
// entries, `(data` and `model)` among them. Moves `i` to its last one.
ConfigValue Reader::layout_tuple(const std::vector<YamlNode>& entries, size_t& i) {
  const SourceLoc& loc = entries[i].loc;
  std::string text = entries[i].text;
  while (text.back() != ')' && i + 1 < entries.size() && entries[i + 1].is_scalar()) {
    text += ", " + entries[++i].text;
  }
  text.erase(0, 1);
  text.erase(text.find_last_not_of(" ,)") + 1);
  diagnostics_.error("E112", loc, "several axes of one dimension are a list")
      .help(fmt::format("write [{}]", text.empty() ? "data, model" : text));
  return make_value(std::monostate{}, loc);
}

ConfigValue Reader::layout(const YamlNode& node, const std::string& key) {
  ConfigValue::List list;
  if (node.is_list()) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      const YamlNode& child = node.children[i];
      const bool is_tuple = child.is_scalar() && starts_with(child.text, "(");
      list.push_back(is_tuple ? layout_tuple(node.children, i) : layout_entry(child, key));
    }
  } else if (!is_python_none(node)) {
    diagnostics_
        .error("E112", node.loc,
               fmt::format("the layout of `{}` must be a list with one entry per dimension", key))
        .help("write [null, model]: null, an axis, or a list of axes for each dimension");
  }
  return make_value(std::move(list), node.loc);
}

ConfigValue Reader::map(const YamlNode& node, const Spec& spec, const std::string& owner) {
  ConfigValue::Dict dict;
  if (!node.is_map()) {
    const bool is_layout = spec.element == ValueKind::kLayout;
    Diagnostic& d = wrong("E112", node.loc, spec, owner, "must be a map");
    if (is_layout) {
      d.help("write one rule per line: `d1/kernel: [null, model]`");
    }
    return make_value(std::move(dict), node.loc);
  }
  Spec element = entry_of(spec, spec.element);
  for (const YamlNode& child : node.children) {
    if (spec.element == ValueKind::kLayout) {
      if (child.is_null() && !child.explicit_null) {
        diagnostics_.error("E112", child.key_loc, fmt::format("rule `{}` has no layout", child.key))
            .help("write [null, model]: null, an axis, or a list of axes for each dimension");
        continue;
      }
      dict.emplace_back(child.key, child.is_null() ? make_value(ConfigValue::List{}, child.loc)
                                                   : layout(child, child.key));
      continue;
    }
    element.name = child.key;
    dict.emplace_back(child.key, value(child, element, fmt::format("`{}`", spec.name)));
  }
  return make_value(std::move(dict), node.loc);
}

ConfigValue Reader::floats_per_output(const YamlNode& node, const Spec& spec,
                                      const std::string& owner) {
  Spec element = entry_of(spec, ValueKind::kFloat);
  if (node.is_map()) {
    ConfigValue::Dict dict;
    for (const YamlNode& child : node.children) {
      element.name = child.key;
      dict.emplace_back(child.key, value(child, element, fmt::format("`{}`", spec.name)));
      dict.back().second.loc = child.key_loc;
    }
    return make_value(std::move(dict), node.loc);
  }
  if (node.is_list()) {
    ConfigValue::List list;
    for (const YamlNode& child : node.children) {
      list.push_back(value(child, element, owner));
    }
    return make_value(std::move(list), node.loc);
  }
  return scalar(node, element, owner);
}

}  // namespace meshtrain
