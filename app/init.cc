// meshtrain init: a commented config to start from.
#include <fmt/format.h>

#include "base/text.h"
#include "cli.h"
#include "templates.h"

namespace meshtrain {
namespace {

std::string list_templates() {
  std::string out;
  for (const Template& entry : templates()) {
    const std::string_view first_line = entry.text.substr(0, entry.text.find('\n'));
    out += fmt::format("{:<24} {}\n", entry.name,
                       starts_with(first_line, "#") ? trim(first_line.substr(1)) : "");
  }
  return out;
}

}  // namespace

int run_init(const Arguments& arguments) {
  if (arguments.template_name.empty()) {
    out_stream().write(list_templates());
    return 0;
  }
  std::vector<std::string> names;
  for (const Template& entry : templates()) {
    if (entry.name == arguments.template_name) {
      out_stream().write(entry.text);
      return 0;
    }
    names.emplace_back(entry.name);
  }
  Diagnostics diagnostics;
  Diagnostic& error =
      diagnostics.error("E140", {}, fmt::format("no template `{}`", arguments.template_name));
  if (const auto nearest = nearest_name(arguments.template_name, names)) {
    error.help(fmt::format("did you mean `{}`?", *nearest));
  }
  error.note("`meshtrain init` lists the templates");
  throw ConfigError(diagnostics);
}

}  // namespace meshtrain
