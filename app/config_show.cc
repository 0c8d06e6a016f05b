// meshtrain config show: the config after merging, overriding and filling in defaults.
#include "cli.h"

namespace meshtrain {

void add_config(Command command) {
  Arguments& a = command.arguments;
  CLI::App& config = *command.app.add_subcommand("config", "Show the merged config");
  config.require_subcommand(1);
  CLI::App& show = *config.add_subcommand("show", "The merged config with all defaults, as YAML");
  add_config_arguments(show, a);
  show.add_flag("--origin", a.origin, "Say where each value comes from");
  show.callback([command] {
    command.action = [command] {
      const LoadOptions options = load_options(command.arguments, false);
      out_stream().write(show_config(options, command.arguments.origin));
      return 0;
    };
  });
}

}  // namespace meshtrain
