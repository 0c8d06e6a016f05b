// The plan of a Setup.
#pragma once

#include "engine/setup.h"
#include "plan/plan_summary.h"

namespace meshtrain {

// `samples`: of the training data, 0 when unknown. `bucket` = false lists every collective
// separately. With `hardware`, the summary estimates the time of a step.
PlanSummary make_plan(const Setup& setup, int64_t samples = 0, bool bucket = true,
                      const Hardware* hardware = nullptr);

}  // namespace meshtrain
