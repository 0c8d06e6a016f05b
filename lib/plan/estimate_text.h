// The part of the plan with the estimated time of a step. The summary must have an estimate.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/plan_summary.h"

namespace meshtrain {

std::string estimate_text(const PlanSummary& summary);
nlohmann::ordered_json estimate_json(const PlanSummary& summary);

}  // namespace meshtrain
