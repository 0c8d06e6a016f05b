// meshtrain config show: the config after merging, overriding and filling in defaults.
#include "config_words.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct ConfigShowOptions {
  ConfigWords config;
  bool origin = false;
};

int run_config_show(const ConfigShowOptions& options, Invocation&) {
  out_stream().write(show_config(options.config.load(false), options.origin));
  return 0;
}

}  // namespace

void add_config_show(Subcommands& to) {
  auto [app, options, subcommand] = to.add<ConfigShowOptions>(
      "config show", "The merged config with all defaults, as YAML", run_config_show);
  options.config.add_to(app);
  app.add_flag("--origin", options.origin, "Say where each value comes from");
}

}  // namespace meshtrain
