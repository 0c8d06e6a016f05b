// RunSummary: what a run was and what came of it, from the files of its folder. `compare` and
// `runs list` show it, and the last line of `train -q --log-format json` has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/report/record.h"

namespace meshtrain {

struct RunSummary {
  std::string folder, name;
  std::vector<std::string> overrides;
  std::vector<std::pair<std::string, int64_t>> mesh;  // empty: one device
  std::optional<int> exit_code;                       // none: killed, or still running
  std::string message;                                // why it ended so
  int64_t epochs = 0;                                 // done
  Logs logs;                                          // of the last epoch
  Logs evaluation;                                    // of the last evaluation; empty: none
  std::string monitor;                                // the log that makes an epoch the best
  bool larger_is_better = false;
  int64_t best_epoch = 0;  // 0: no epoch has that log
  Logs best_logs;          // of that epoch
  double train_seconds = 0;
  double ms_per_step = 0;         // the median of the epochs, without validation; 0: no epoch
  int64_t bytes_per_device = 0;   // weights and optimizer state
  int64_t memory_per_device = 0;  // of a step as planned: those, and the step's arena
};

RunSummary summarize_run(const RunRecord& record);

// "finished", "stopped", "diverged", "failed with exit code 4", "running", "no end recorded".
std::string run_state(const RunSummary& run);
std::string mesh_text(
    const std::vector<std::pair<std::string, int64_t>>& mesh);  // "data=4 model=2"
// Returns the value of a log; null where there is none of that name.
const double* find_log(const Logs& logs, std::string_view name);

// `event`, the JSON of an epoch or an evaluation, with what the summary has beside it: name,
// run_dir, overrides, mesh, epochs, best_epoch, train_seconds, ms_per_step, bytes_per_device.
std::string result_line(std::string_view event, const RunSummary& run);

}  // namespace meshtrain
