// The proof of resume: what a resumed run does is what the run did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run_request.h"

namespace meshtrain {

struct ResumeProof {
  int64_t from = 0, to = 0;  // steps of the two checkpoints
  size_t num_tensors = 0;
  std::vector<std::string> differences;  // one line each; none: bit for bit the same
};

// Runs the last interval between two checkpoints of the run again, from the first, and compares
// what comes out with the second. `scratch`: where the replay writes; "": the folder of temporary
// files. Throws ConfigError (exit 6): E400 when the run has no two checkpoints of one mesh, model,
// optimizer and data, E455 when a process that trains it deletes them meanwhile.
ResumeProof verify_resume(const std::string& run, const RunRequest& request,
                          const std::string& scratch);

}  // namespace meshtrain
