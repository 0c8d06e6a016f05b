// What a run is, in the words of its first screen.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "config/config_changes.h"
#include "engine/make_plan.h"
#include "engine/run_data.h"
#include "record/run_info.h"
#include "train/run_request.h"

namespace meshtrain {

// `gpu`: the name of this process' GPU; "" on the processor.
RunInfo describe_run(const RunRequest& request, const Setup& setup, const PlanSummary& plan,
                     const RunData& data, const std::string& run_dir, const std::string& gpu);
std::string saves_text(const Config& config);  // "every epoch, the newest 3 are kept"
// Adds where it resumes, and what has changed since.
void describe_resume(const CheckpointReader& reader, const TrainPosition& at,
                     const std::vector<ConfigChange>& changes, const DeviceMesh& mesh,
                     RunInfo& info);

}  // namespace meshtrain
