// meshtrain plan: what lies where and which collective moves what, without a step or a device.
#include <fmt/format.h>

#include <optional>

#include "cli.h"
#include "engine/make_plan.h"
#include "plan/hardware_file.h"

namespace meshtrain {

namespace {

// The hardware to estimate for, on as many hosts as --hosts says: devices on paper, or with a file
// of hardware virtual ones on this processor. None for GPUs that are here: they are not looked at.
std::optional<Hardware> hardware_of(const Setup& setup, const Arguments& arguments) {
  const Located<std::string>& file = setup.config().plan.hardware;
  const DeviceRequest& request = setup.distribution().devices;
  if (request.hardware.empty() && file->empty()) {
    return std::nullopt;
  }
  const std::vector<Hardware> table = load_hardware(file);
  const Hardware* found = requested_hardware(request, table);
  if (found == nullptr) {
    return std::nullopt;
  }
  Hardware out = *found;
  const int64_t devices = setup.mesh().num_devices();
  if (arguments.hosts > 0) {
    if (devices % arguments.hosts != 0) {
      throw ConfigError(
          "E140", {},
          fmt::format("`--hosts {}`: {} devices do not split over them", arguments.hosts, devices));
    }
    out.per_host = devices / arguments.hosts;
  }
  return out;
}

}  // namespace

int run_plan(const Arguments& arguments) {
  const Config config = load_config(load_options(arguments, false));
  const Setup setup(config, nullptr, arguments.dump_ir);
  const std::optional<Hardware> hardware = hardware_of(setup, arguments);
  PlanSummary plan = make_plan(setup, 0, true, hardware ? &*hardware : nullptr);
  if (!hardware && (arguments.hosts > 0 || !config.plan.hardware->empty())) {
    const Located<std::string>& devices = setup.distribution().devices.text;
    plan.warnings
        .warning("W621", devices.loc,
                 fmt::format("no estimate: `{}` names devices of this machine", devices.value))
        .help(fmt::format("write `--devices {}xH100`", setup.mesh().num_devices()));
  }
  const bool json = arguments.format == "json" || arguments.log_format == "json";
  out_stream().write(json ? plan_json(plan) : plan_text(plan));
  if (json) {
    show_warnings(plan.warnings, arguments);  // the text has them
  }
  return 0;
}

}  // namespace meshtrain
