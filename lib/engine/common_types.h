// Element types of the parts of a run's data.
#pragma once

#include "engine/run_data.h"

namespace meshtrain {

// One step serves all parts, so that an array gets one type in all of them: one that holds the
// numbers of each.
void unify_types(RunData& data);

}  // namespace meshtrain
