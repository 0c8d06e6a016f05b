// What a sweep file says (sweep_plan.h has its keys).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "train/sweep_parameters.h"

namespace meshtrain {

// When a run is hopeless: its best value after some epochs is worse than the median of what the
// finished runs had on average until then (Vizier's median stopping rule).
struct MedianRule {
  std::string monitor;  // a log; "": what the run monitors, else loss
  bool larger_is_better = false;
  int64_t min_epochs = 1;  // that a run does in any case
  int64_t min_runs = 3;    // that must have finished
};

struct SweepFile {
  std::vector<std::string> configs;
  std::string method = "grid";
  std::vector<SweepParameter> parameters;
  std::vector<SweepValues> runs;  // of `method: list`
  SweepValues fixed;
  int64_t trials = 0, seed = 0, parallel = 1;
  std::optional<MedianRule> early_stop;

  std::set<std::string> varied_keys() const;
};

// Reads the file when it describes a sweep: its top level has the key `config`. Its problems, E100
// to E114, join `diagnostics`.
std::optional<SweepFile> read_sweep_file(const std::string& path, Diagnostics& diagnostics);

}  // namespace meshtrain
