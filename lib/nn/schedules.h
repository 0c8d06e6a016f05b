// Learning rate schedules, evaluated on the host. Source: Keras 3 learning_rate_schedule.py.
#pragma once

#include <cstdint>

#include "config/object.h"

namespace meshtrain {

// The rate at raw iteration `step` (0 is the first).
double schedule_rate(const ConfigObject& schedule, int64_t step);

}  // namespace meshtrain
