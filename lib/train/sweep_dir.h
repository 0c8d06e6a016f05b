// The folder of a sweep, and the plan that a request asks for: of a new sweep, or of the one in
// that folder.
#pragma once

#include <string>

#include "record/run_dir.h"
#include "train/sweep.h"

namespace meshtrain {

// Where sweeps of this plan have their folders.
RunDirOptions sweep_place(const SweepPlan& plan);

// The folder of a new sweep, or of the one to resume; it is there then.
std::string make_sweep_dir(const SweepRequest& request, const SweepPlan& plan);

// From the words of the command line, or from the journal of the folder that they name, which
// becomes the folder to resume.
SweepPlan requested_plan(SweepRequest& request);

}  // namespace meshtrain
