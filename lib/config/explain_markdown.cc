// configs/REFERENCE.md: every key and class.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/diagnostic.h"
#include "base/error_codes.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/explain.h"
#include "config/schema.h"

namespace meshtrain {
namespace {

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
  return wrapped(fmt::format("- `{}`{}: {}; {}", spec.name,
                             spec.is_required   ? " (required)"
                             : standard.empty() ? ""
                                                : fmt::format(" = `{}`", standard),
                             spec.help, accepted_values(spec)),
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

// "- `E100` (exit code 2): a config cannot be opened. The path does not exist, ..."
std::string codes_markdown() {
  std::string out = "\n## Messages\n\n";
  for (const ErrorCode& entry : error_codes()) {
    const ConfigError sample(std::string(entry.code), {}, "");
    const std::string effect =
        starts_with(entry.code, "W")
            ? "a warning"
            : fmt::format("exit code {}", static_cast<int>(sample.exit_code()));
    out += wrapped(fmt::format("- `{}` ({}): {}. {}", entry.code, effect, entry.title, entry.text),
                   "  ");
  }
  return out;
}

}  // namespace

std::string explain_markdown() {
  std::string out =
      "# Every key, class and message\n\n"
      "`meshtrain explain --markdown > configs/REFERENCE.md` writes this file.\n"
      "An entry of a key gives the name, the default, the meaning, and what it takes.\n\n"
      "## Keys\n\n";
  add_section("", root_section(), out);
  for (int i = 0; i < kNumCategories; ++i) {
    out += category_markdown(static_cast<Category>(i));
  }
  return out + codes_markdown();
}

}  // namespace meshtrain
