// The command line as what is asked of a run.
#pragma once

#include "cli.h"
#include "train/run_request.h"

namespace meshtrain {

// `arguments` must outlive the run.
RunRequest run_request(const Arguments& arguments, LoadOptions load);

}  // namespace meshtrain
