// meshtrain config show: the config after merging, overriding and filling in defaults.
#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/schema.h"
#include "config_words.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct ConfigShowOptions {
  ConfigWords config;
  bool origin = false, minimal = false;
};

// Lines of the YAML `text` that belong to the key `path`, indentation included; "" when it has
// none.
std::string part_of(const std::string& text, const std::string& path) {
  std::vector<std::string> lines = split(text, '\n');
  size_t depth = 0;
  for (const std::string& name : split(path, '.')) {
    const std::string indent(depth * 2, ' ');
    const auto begin = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return starts_with(line, indent + name + ":");
    });
    if (begin == lines.end()) {
      return "";
    }
    const auto end = std::find_if(begin + 1, lines.end(), [&](const std::string& line) {
      return line.empty() || !starts_with(line, indent + " ");
    });
    lines = {begin, end};
    ++depth;
  }
  return join(lines, "\n") + "\n";
}

int run_config_show(const ConfigShowOptions& options, Invocation&) {
  ConfigShowOptions shown = options;
  std::vector<std::string> keys;
  std::error_code error;
  std::erase_if(shown.config.words, [&](const std::string& word) {
    const bool is_key = word.find('=') == std::string::npos && is_known_key(word) &&
                        !std::filesystem::exists(word, error);
    if (is_key) {
      keys.push_back(word);
    }
    return is_key;
  });
  if (options.origin && options.minimal) {
    refuse("E140", "`--minimal` leaves out what `--origin` would call a default",
           "give one of them");
  }
  const LoadOptions load = shown.config.load(false);
  const std::string all =
      options.minimal ? minimal_config(load) : show_config(load, options.origin);
  for (const std::string& key : keys) {
    out_stream().write(part_of(all, key));
  }
  out_stream().write(keys.empty() ? all : "");
  return 0;
}

}  // namespace

void add_config_show(Subcommands& to) {
  auto [app, options, subcommand] = to.add<ConfigShowOptions>(
      "config show", "The merged config with all defaults, as YAML", run_config_show);
  options.config.add_to(app);
  app.add_flag("--origin", options.origin, "Say where each value comes from");
  app.add_flag("--minimal", options.minimal,
               "Only what differs from the defaults: it means the same");
}

}  // namespace meshtrain
