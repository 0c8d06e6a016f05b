// The part of the plan that says how long a step takes. The report has an estimate.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/report.h"

namespace meshtrain {

std::string estimate_text(const PlanReport& report);
nlohmann::ordered_json estimate_json(const PlanReport& report);

}  // namespace meshtrain
