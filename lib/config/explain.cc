#include "config/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/other_names.h"
#include "config/schema.h"

namespace meshtrain {
namespace {

// "a loss", "an optimizer"
std::string with_article(const std::string& noun) {
  return (noun.find_first_of("aeiou") == 0 ? "an " : "a ") + noun;
}

std::string plural_of(const std::string& noun) {
  return noun + (ends_with(noun, "s") ? "es" : "s");
}

std::string kind_text(const Spec& spec) {
  const std::string name(category_name(spec.category));
  const std::string object = with_article(name), objects = plural_of(name);
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
      return object;
    case ValueKind::kFloatOrObject:
      return "a number or " + object;
    case ValueKind::kObjectList:
      return "a list of " + objects;
    case ValueKind::kObjectPerOutput:
      return fmt::format("{}, or a list or map of {} by output", object, objects);
    case ValueKind::kObjectsPerOutput:
      return fmt::format("a list of {}, or a list or map of such lists by output", objects);
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
  return spec.accepted.empty() ? kind_text(spec) + limits_text(spec) : spec.accepted;
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

// Every class of a kind with its line.
std::string kind_list(Category category) {
  std::vector<std::vector<std::string>> rows;
  for (const ClassSpec& spec : classes(category)) {
    rows.push_back({"  " + spec.name, spec.help});
  }
  return fmt::format("{}:\n\n{}", class_kind_word(category), aligned_columns(rows));
}

// "losses", "loss", "data sources"
std::string explain_kind(std::string_view word) {
  for (int i = 0; i < kNumCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const std::string name(category_name(category)), plural = class_kind_word(category);
    if (word == name || word == plural || std::string(word) + "s" == plural ||
        (category == Category::kSource && word == name + "s")) {
      return kind_list(category);
    }
  }
  return "";
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
      const std::string other = instead_of(category, name);
      texts.push_back(fmt::format("{} ({}): not supported{}\n", name, category_name(category),
                                  other.empty() ? "" : "; " + other));
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

namespace {

// The same word as a class spells it, in any case: "lstm" is LSTM.
std::string spelled_as_known(std::string_view word) {
  const std::string lower = to_lower(word);
  for (int i = 0; i < kNumCategories; ++i) {
    const auto category = static_cast<Category>(i);
    std::vector<std::string> names = class_names(category);
    const std::vector<std::string> later = unsupported_class_names(category);
    names.insert(names.end(), later.begin(), later.end());
    for (const std::string& name : names) {
      if (to_lower(name) == lower) {
        return name;
      }
    }
  }
  return std::string(word);
}

// Keys that act before the config is read, and have no value in it.
std::string explain_early_key(std::string_view word) {
  static constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"vars", "names and values for `=expressions`, as `vars: {width: 64}` and `units: =width`"},
      {"blocks", "parts of a model by name, used as layers and by `Repeat`"},
      {"profiles",
       "named changes, as `profiles: {debug: {fit.epochs: 1}}`; `--profile debug` applies one"},
      {"extends", "a config, or a list of them, that this one is laid over; relative to this file"},
      {"override", "changes by path, as `override: {fit.epochs: 3}`, after `extends`"}};
  for (const auto& [key, text] : kKeys) {
    if (key == word) {
      return fmt::format("{}: {}\n", key, text);
    }
  }
  return "";
}

// What other frameworks call so.
std::string explain_other_name(std::string_view word) {
  for (int i = 0; i < kNumCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (const std::string other = instead_of(category, word);
        !other.empty() && category != Category::kRegularizer) {
      return fmt::format("{} ({}): not here by that name; {}\n", word, category_name(category),
                         other);
    }
  }
  const std::string policy = instead_of_policy(word);
  return policy.empty()
             ? ""
             : fmt::format("{} (dtype policy): not here by that name; {}\n", word, policy);
}

// The classes that have an argument of this name.
std::string explain_argument(std::string_view name) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> names;
  for (int i = 0; i < kNumCategories; ++i) {
    for (const ClassSpec& spec : classes(static_cast<Category>(i))) {
      const Spec* const arg = spec.find(name);
      if (arg != nullptr && arg->kind != ValueKind::kUnsupported &&
          std::find(names.begin(), names.end(), spec.name) == names.end()) {
        names.push_back(spec.name);
      }
    }
  }
  if (names.empty()) {
    return "";
  }
  const std::string example = names[0];
  if (names.size() > kMostNames) {
    names.resize(kMostNames);
    names.push_back("...");
  }
  return fmt::format("{0}: an argument of {1} (meshtrain explain {2}.{0})\n", name,
                     join(names, ", "), example);
}

}  // namespace

std::optional<std::string> explain_word(std::string_view word) {
  if (const Spec* spec = find_field(word)) {
    std::string text = field_text(std::string(word), *spec);
    if (spec->kind == ValueKind::kObject) {
      text += "\n" + kind_list(spec->category);
    }
    return text;
  }

  const size_t dot = word.find('.');
  std::string text = dot == std::string_view::npos
                         ? explain_classes(word, std::nullopt)
                         : explain_classes(word.substr(0, dot), word.substr(dot + 1));
  if (text.empty()) {
    text = explain_kind(to_lower(word));
  }
  if (const auto path = section_with_key(word)) {
    if (const Spec* spec = find_field(*path)) {
      text = field_text(*path, *spec) + (text.empty() ? "" : "\n" + text);
    } else if (text.empty()) {
      text = fmt::format("{}: an argument of the class there, as Adam.learning_rate\n", *path);
    }
  }
  if (text.empty()) {
    text = explain_early_key(word);
  }
  if (text.empty() && dot == std::string_view::npos) {
    const std::string known = spelled_as_known(word);
    text = known != word ? explain_classes(known, std::nullopt) : "";
    const std::string other = explain_other_name(word);  // Linear: here also an activation
    text += (text.empty() || other.empty() ? "" : "\n") + other;
  }
  if (text.empty()) {
    text = explain_argument(word);
  }
  if (const std::string other = instead_of_word(word); text.empty() && !other.empty()) {
    text = fmt::format("{}: {}\n", word, other);
  }
  const std::string_view module = word.substr(0, dot);
  const auto is_module = [&](std::string_view name) { return name == module; };
  constexpr std::string_view kModules[] = {"torch", "torchvision",  "nn",    "F",
                                           "optim", "lr_scheduler", "keras", "tf",
                                           "jax",   "flax",         "optax"};
  if (text.empty() && dot != std::string_view::npos &&
      std::any_of(std::begin(kModules), std::end(kModules), is_module)) {
    return explain_word(word.substr(word.rfind('.') + 1));
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
