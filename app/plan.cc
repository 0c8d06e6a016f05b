// meshtrain plan: what lies where and which collective moves what, without a step or a device.
#include "cli.h"
#include "train/make_plan.h"

namespace meshtrain {

int show_plan(const Arguments& arguments) {
  const Config config = load_config(load_options(arguments, false));
  const Setup setup(config, nullptr, arguments.dump_ir);
  const PlanReport plan = make_plan(setup);
  const bool json = arguments.format == "json" || arguments.log_format == "json";
  out_stream().write(json ? plan_json(plan) : plan_text(plan));
  if (json) {
    show_warnings(plan.warnings, arguments);  // the text has them
  }
  return 0;
}

void add_plan(Command command) {
  Arguments& a = command.arguments;
  CLI::App& verb = *command.app.add_subcommand(
      "plan", "Layouts, bytes per device, collectives of a step; needs no data and no device");
  add_config_arguments(verb, a);
  verb.add_option("--dump-ir", a.dump_ir, "Write the graph after each pass")->type_name("DIR");
  add_format_flag(verb, a);
  add_color_flag(verb, a);
  verb.callback([command] { command.action = [command] { return show_plan(command.arguments); }; });
}

}  // namespace meshtrain
