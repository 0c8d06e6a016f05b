// meshtrain plan: what lies where and which collective moves what, without a step or a device.
#include "cli.h"
#include "train/make_plan.h"

namespace meshtrain {

int run_plan(const Arguments& arguments) {
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

}  // namespace meshtrain
