// Runs that were moved together with their data: a project that was renamed or copied elsewhere.
#pragma once

#include <string>

#include "config/load.h"

namespace meshtrain {

// For the config of a run, or of one of its checkpoints, in `options.source`. Its `data.dir` is
// absolute. When that folder is gone and is found where it was as seen from the run, an override
// names it, which later words replace. `place`: the folder of the run or checkpoint.
void follow_move(const std::string& place, LoadOptions& options);

}  // namespace meshtrain
