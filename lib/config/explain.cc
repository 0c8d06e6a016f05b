#include "config/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

}  // namespace

std::string accepted_values(const Spec& spec) {
  return kind_text(spec) + limits_text(spec);
}

std::string default_of(const Spec& spec) {
  return spec.is_required ? "required" : spec.default_text;
}

namespace {

// " (int, categorical, none)" for a value that is one of a few words.
std::string allowed_words(const Spec& spec) {
  const bool is_named =
      std::all_of(spec.allowed.begin(), spec.allowed.end(),
                  [&](const auto& word) { return spec.help.find(word) != std::string::npos; });
  return spec.kind != ValueKind::kEnum || is_named ? ""
                                                   : fmt::format(" ({})", join(spec.allowed, ", "));
}

// The kinds of data sources, for a key that takes one.
std::string sources_text(const Spec& spec) {
  const bool takes_source = spec.kind == ValueKind::kObject && spec.category == Category::kSource;
  return takes_source ? fmt::format("  sources  {}\n  example  {{source: csv, path: table.csv}}\n",
                                    join(class_names(Category::kSource), ", "))
                      : "";
}

std::string table(const std::vector<Spec>& specs) {
  std::vector<std::vector<std::string>> rows;
  for (const Spec& spec : specs) {
    if (spec.kind != ValueKind::kUnsupported) {
      rows.push_back({"  " + spec.name, default_of(spec), spec.help + allowed_words(spec)});
    }
  }
  return aligned_columns(rows);
}

std::string field_text(const std::string& path, const Spec& spec) {
  if (spec.kind == ValueKind::kSection) {
    return fmt::format("{}: {}\n\n{}", path, spec.help, table(spec.section->fields));
  }
  const std::string standard = default_of(spec);
  return fmt::format("{}: {}\n\n  takes    {}\n{}{}", path, spec.help, accepted_values(spec),
                     standard.empty() ? "" : fmt::format("  default  {}\n", standard),
                     sources_text(spec));
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

}  // namespace

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
