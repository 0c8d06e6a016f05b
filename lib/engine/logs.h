// Logs, the position in a training, and the reports of epochs and evaluations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace meshtrain {

using Clock = std::function<double()>;  // seconds, from any origin, never back

// Name and value in Keras' order: sorted, as `fit` shows them.
using Logs = std::vector<std::pair<std::string, double>>;
// The values of metrics that have several, one per class or threshold; Logs has their mean.
using LogLists = std::map<std::string, std::vector<double>>;
// The logs of a validation, with "val_" before their names.
inline Logs validation_logs(const Logs& logs) {
  Logs out;
  for (const auto& [name, value] : logs) {
    out.emplace_back("val_" + name, value);
  }
  return out;
}

struct TrainPosition {
  int64_t step = 0;            // training steps since the run began
  int64_t epoch = 0;           // epochs done
  int64_t batch = 0;           // batches done of the epoch that runs
  bool epoch_trained = false;  // its batches are done; validation follows
  Logs logs;                   // of its batches so far
  LogLists lists = {};
  // With epoch_trained: how many of its steps were timed, and what they took (EpochReport).
  int64_t timed_steps = 0;
  double train_seconds = 0;

  bool operator==(const TrainPosition&) const = default;
};

struct EpochReport {
  int64_t epoch = 0;         // from 1
  int64_t epochs = 0;        // Keras' `epochs`: the last one's number
  int64_t steps = 0;         // done
  int64_t timed_steps = 0;   // of those, since the start of the epoch or the resume within it
  double seconds = 0;        // since then, validation included
  double train_seconds = 0;  // the steps alone
  Logs logs;  // sorted training values, then sorted validation values with "val_" before them
  LogLists lists = {};                        // under the same names
  std::optional<double> scheduled_rate = {};  // that a schedule has reached

  // Without validation; 0 where no step was timed.
  double seconds_per_step() const {
    return timed_steps > 0 ? train_seconds / static_cast<double>(timed_steps) : 0;
  }
};

struct EvaluateReport {
  int64_t steps = 0;
  double seconds = 0;
  Logs logs;
  LogLists lists = {};
};

}  // namespace meshtrain
