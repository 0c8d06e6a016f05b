#include "config/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/columns.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/schema.h"

namespace meshtrain {
namespace {

std::string kind_text(const Spec& spec) {
  const std::string object(category_name(spec.category));
  switch (spec.kind) {
    case ValueKind::kAny:
      return "any value";
    case ValueKind::kBool:
      return "true or false";
    case ValueKind::kInt:
      return "a whole number";
    case ValueKind::kFloat:
      return "a number";
    case ValueKind::kText:
      return "text";
    case ValueKind::kEnum:
      return "one of " + join(spec.allowed, ", ");
    case ValueKind::kPath:
      return "a path, relative to the folder of the file";
    case ValueKind::kPaths:
      return "a path, pattern or list of them, relative to the folder of the file";
    case ValueKind::kSlice:
      return "a slice such as [:90%] or [100:200]";
    case ValueKind::kIntOrList:
      return "a whole number or a list of them";
    case ValueKind::kFloatOrList:
      return "a number or a list of them";
    case ValueKind::kShape:
      return "sizes such as [2, 4] or 2x4";
    case ValueKind::kTextList:
      return "a list of texts";
    case ValueKind::kNames:
      return "a name, a list of them, or a map of them";
    case ValueKind::kLayout:
      return "a list with an axis, a list of axes or null for each dimension";
    case ValueKind::kActivation:
      return "an activation";
    case ValueKind::kObject:
      return "a " + object;
    case ValueKind::kFloatOrObject:
      return "a number or a " + object;
    case ValueKind::kObjectList:
      return fmt::format("a list of {}s", object);
    case ValueKind::kObjectPerOutput:
      return fmt::format("a {0}, or a list or map of {0}s by output", object);
    case ValueKind::kObjectsPerOutput:
      return fmt::format("a list of {}s, or a list or map of such lists by output", object);
    case ValueKind::kFloatPerOutput:
      return "a number, or a list or map of numbers by output";
    case ValueKind::kMap: {
      Spec element = spec;
      element.kind = spec.element;
      return "a map of names to " + kind_text(element);
    }
    case ValueKind::kSection:
      return "a map";
    case ValueKind::kUnsupported:
      return "nothing yet";
  }
  return {};
}

std::string limits_text(const Spec& spec) {
  std::string text;
  if (std::isfinite(spec.minimum)) {
    text += fmt::format(", {} {}", spec.above_minimum ? "above" : "at least", spec.minimum);
  }
  if (std::isfinite(spec.maximum) && spec.maximum < kMaxSize) {
    text += fmt::format(", {} {}", spec.below_maximum ? "below" : "at most", spec.maximum);
  }
  return text;
}

std::string default_of(const Spec& spec) {
  return spec.is_required ? "required" : spec.default_text;
}

std::string table(const std::vector<Spec>& specs) {
  std::vector<std::vector<std::string>> rows;
  for (const Spec& spec : specs) {
    if (spec.kind != ValueKind::kUnsupported) {
      rows.push_back({"  " + spec.name, default_of(spec), spec.help});
    }
  }
  return aligned_columns(rows);
}

std::string field_text(const std::string& path, const Spec& spec) {
  if (spec.kind == ValueKind::kSection) {
    return fmt::format("{}: {}\n\n{}", path, spec.help, table(spec.section->fields));
  }
  const std::string standard = default_of(spec);
  return fmt::format("{}: {}\n\n  takes    {}{}\n{}", path, spec.help, kind_text(spec),
                     limits_text(spec),
                     standard.empty() ? "" : fmt::format("  default  {}\n", standard));
}

const Spec* find_field(std::string_view path) {
  const Section* section = &root_section();
  const Spec* found = nullptr;
  for (const std::string& name : split(path, '.')) {
    found = section == nullptr ? nullptr : section->find(name);
    if (found == nullptr) {
      return nullptr;
    }
    section = found->section;
  }
  return found;
}

std::string class_text(const ClassSpec& spec) {
  std::string text =
      fmt::format("{} ({}): {}\n", spec.name, category_name(spec.category), spec.help);
  if (!spec.aliases.empty()) {
    text += fmt::format("\n  also written {}\n", join(spec.aliases, ", "));
  }
  return spec.args.empty() ? text : text + "\n" + table(spec.args);
}

// Of a class in any category, or of one of its arguments.
std::string explain_classes(std::string_view name, std::optional<std::string_view> argument) {
  std::vector<std::string> texts;
  bool is_here = false;
  for (int i = 0; i < kNumCategories; ++i) {
    const ClassSpec* found = find_class(static_cast<Category>(i), name);
    if (found == nullptr) {
      continue;
    }
    is_here = true;
    if (!argument) {
      texts.push_back(class_text(*found));
    } else if (const Spec* spec = found->find(*argument)) {
      texts.push_back(field_text(found->name + "." + spec->name, *spec));
    }
  }
  for (int i = 0; i < kNumCategories && !is_here; ++i) {
    const auto category = static_cast<Category>(i);
    if (is_unsupported_class(category, name)) {
      texts.push_back(
          fmt::format("{} ({}): comes with a later release; until then a config with "
                      "it is refused\n",
                      name, category_name(category)));
    } else if (const std::string_view instead = refusal(category, name); !instead.empty()) {
      texts.push_back(
          fmt::format("{} ({}): not here; {}\n", name, category_name(category), instead));
    }
  }
  return join(texts, "\n");
}

void add_paths(const Section& section, const std::string& prefix, std::vector<std::string>& out) {
  for (const Spec& spec : section.fields) {
    out.push_back(prefix + spec.name);
    if (spec.kind == ValueKind::kSection) {
      add_paths(*spec.section, out.back() + ".", out);
    }
  }
}

// In lines of at most 120 bytes, those after the first behind `indent`.
std::string wrapped(std::string_view text, std::string_view indent = "") {
  constexpr size_t kWidth = 120;
  std::string out, line;
  for (const std::string& word : split(text, ' ')) {
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = std::string(indent) + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return out + line + "\n";
}

// "- `units` (required): size of the output; a whole number, at least 1"
std::string markdown_item(const Spec& spec) {
  const std::string standard = default_of(spec);
  return wrapped(fmt::format("- `{}`{}: {}; {}{}", spec.name,
                             spec.is_required   ? " (required)"
                             : standard.empty() ? ""
                                                : fmt::format(" = `{}`", standard),
                             spec.help, kind_text(spec), limits_text(spec)),
                 "  ");
}

void add_section(const std::string& path, const Section& section, std::string& out) {
  std::string below;
  for (const Spec& spec : section.fields) {
    if (spec.kind == ValueKind::kUnsupported) {
      continue;
    }
    if (spec.section == nullptr) {
      out += markdown_item(spec);
      continue;
    }
    const std::string inner = path.empty() ? spec.name : path + "." + spec.name;
    below += fmt::format("\n### {}\n\n{}.\n\n", inner, spec.help);
    add_section(inner, *spec.section, below);
  }
  out += below;
}

bool has_same(const std::vector<Spec>& args, const Spec& arg) {
  return std::any_of(args.begin(), args.end(), [&](const Spec& other) {
    return other.name == arg.name && other.kind == arg.kind && other.help == arg.help &&
           other.default_text == arg.default_text;
  });
}

// Arguments that most classes of a category have, as layers have `name` and `inputs`.
std::vector<Spec> common_arguments(std::span<const ClassSpec> all) {
  std::vector<Spec> out;
  for (const ClassSpec& spec : all) {
    for (const Spec& arg : spec.args) {
      const auto has = [&](const ClassSpec& other) { return has_same(other.args, arg); };
      if (!has_same(out, arg) &&
          4 * std::count_if(all.begin(), all.end(), has) > 3 * std::ssize(all)) {
        out.push_back(arg);
      }
    }
  }
  return out;
}

// Its arguments but the common ones, of which those are named that it lacks.
std::string class_markdown(const ClassSpec& spec, const std::vector<Spec>& common) {
  std::string out =
      fmt::format("\n### {} ({})\n\n{}.\n", spec.name, category_name(spec.category), spec.help);
  if (!spec.aliases.empty()) {
    out += fmt::format("Also written {}.\n", join(spec.aliases, ", "));
  }
  std::vector<std::string> lacking;
  for (const Spec& arg : common) {
    if (!has_same(spec.args, arg)) {
      lacking.push_back(fmt::format("`{}`", arg.name));
    }
  }
  if (!lacking.empty()) {
    out += wrapped(fmt::format("Not as common arguments: {}.", join(lacking, ", ")));
  }
  std::string items;
  for (const Spec& arg : spec.args) {
    if (arg.kind != ValueKind::kUnsupported && !has_same(common, arg)) {
      items += markdown_item(arg);
    }
  }
  return items.empty() ? out : out + "\n" + items;
}

std::string category_markdown(Category category) {
  const std::span<const ClassSpec> all = classes(category);
  const std::vector<Spec> common = common_arguments(all);
  std::string out = fmt::format("\n## Classes: {}\n", category_name(category));
  if (!common.empty()) {
    out += "\nCommon arguments:\n\n";
  }
  for (const Spec& arg : common) {
    out += markdown_item(arg);
  }
  for (const ClassSpec& spec : all) {
    out += class_markdown(spec, common);
  }
  return out;
}

}  // namespace

std::string explain_markdown() {
  std::string out =
      "# Every key and class of a config\n\n"
      "`meshtrain explain --markdown > configs/REFERENCE.md` writes this file.\n"
      "An entry gives the name, the default, the meaning, and what it takes.\n\n"
      "## Keys\n\n";
  add_section("", root_section(), out);
  for (int i = 0; i < kNumCategories; ++i) {
    out += category_markdown(static_cast<Category>(i));
  }
  return out;
}

std::optional<std::string> explain_word(std::string_view word) {
  if (const Spec* spec = find_field(word)) {
    return field_text(std::string(word), *spec);
  }
  const size_t dot = word.find('.');
  std::string text = dot == std::string_view::npos
                         ? explain_classes(word, std::nullopt)
                         : explain_classes(word.substr(0, dot), word.substr(dot + 1));
  if (const auto path = section_with_key(word)) {
    if (const Spec* spec = find_field(*path)) {
      text = field_text(*path, *spec) + (text.empty() ? "" : "\n" + text);
    } else if (text.empty()) {
      text = fmt::format("{}: an argument of the class there, as Adam.learning_rate\n", *path);
    }
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

std::vector<std::string> explained_words() {
  std::vector<std::string> words;
  add_paths(root_section(), "", words);
  for (int i = 0; i < kNumCategories; ++i) {
    for (std::string& name : class_names(static_cast<Category>(i))) {
      words.push_back(std::move(name));
    }
  }
  return words;
}

}  // namespace meshtrain
