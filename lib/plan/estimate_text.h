// The part of the plan that says how long a step takes. The summary has an estimate.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/plan_summary.h"

namespace meshtrain {

std::string estimate_text(const PlanSummary& summary);
nlohmann::ordered_json estimate_json(const PlanSummary& summary);

}  // namespace meshtrain
