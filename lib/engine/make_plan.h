// The plan of a Setup.
#pragma once

#include "engine/setup.h"
#include "plan/plan_summary.h"

namespace meshtrain {

// `samples`: of the training data, 0 when they were not read. `bucket` false lists every collective
// by itself. With `hardware` the report estimates the step's time there.
PlanSummary make_plan(const Setup& setup, int64_t samples = 0, bool bucket = true,
                      const Hardware* hardware = nullptr);

}  // namespace meshtrain
