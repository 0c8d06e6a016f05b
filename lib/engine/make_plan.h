// The plan of a Setup.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/setup.h"
#include "plan/plan_summary.h"

namespace meshtrain {

// Kernels that a GPU starts for each step of a program, by what they depend on.
using LaunchShares = std::map<std::string, double>;

// `samples`: of the training data, 0 when unknown. `bucket` = false lists every collective
// separately. With `hardware`, the summary estimates the time of a step. With `shares`, of a search
// among many plans, the estimate takes and adds launch shares there, and has no advice and no
// comparison with one device.
PlanSummary make_plan(const Setup& setup, int64_t samples = 0, bool bucket = true,
                      const Hardware* hardware = nullptr, LaunchShares* shares = nullptr);

// The hardware of a run's own devices, for an estimate: `cpu` for virtual ones, else what the name
// of its first GPU says. Nothing for a GPU that is not in the table.
std::optional<Hardware> own_hardware(const Setup& setup);

// The plan of a config, without data and devices, with an estimate for the hardware that it names.
// `hosts` that these devices are in, 0: as the hardware has them. `dump_ir`: as Setup has it.
// Throws ConfigError E140 where the devices do not split over the hosts.
PlanSummary plan_config(const Config& config, int64_t hosts, const std::string& dump_ir);

}  // namespace meshtrain
