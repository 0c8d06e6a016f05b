// The record of a run, read from its folder for the report: metrics.jsonl and, where they exist,
// plan.json, meta.json, log.txt and the config.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/step_runner.h"

namespace meshtrain {

// One start of the run: the first, and each time it was resumed.
struct RunSession {
  std::string config, version, devices;
  int64_t seed = 0, parameters = 0, batch_size = 0, epochs = 0;
  std::vector<std::pair<std::string, int64_t>> mesh;
  std::string resumed_from;
  int64_t bytes_per_device = 0;  // of weights and optimizer state
  std::vector<std::string> overrides;
  std::string monitor;  // the log whose best value makes an epoch the best
  bool larger_is_better = false;
  std::vector<std::vector<std::string>> changes;  // key, before, after
  std::optional<int> exit_code;                   // none: killed, or still running
  std::string message;                            // why it ended so
  std::string stopped;                            // why before its last epoch
};

struct RunEpoch {
  int64_t epoch = 0, steps = 0;
  size_t session = 0;
  double seconds = 0, ms_per_step = 0;
  double tokens_per_second = NAN, mfu = NAN;  // where the run knows them
  Logs logs;                                  // NaN for what was not finite
};

// Within an epoch.
struct RunValidation {
  int64_t epoch = 0, step = 0;
  Logs logs;
};

struct RunStep {
  int64_t epoch = 0, step = 0;
  double loss = 0;
};

// A line of log.txt.
struct RunMoment {
  double time = 0;     // seconds since 1970
  std::string what;    // start, epoch, saved, warning, end
  std::string detail;  // the rest of the line
};

struct RunRecord {
  std::string folder, name;
  std::vector<RunSession> sessions;  // at least one
  std::vector<RunEpoch> epochs;
  std::vector<RunValidation> validations;
  std::vector<RunStep> steps;  // with run.log_steps
  std::vector<Logs> evaluations;
  std::vector<std::string> warnings;
  std::vector<RunMoment> moments;
  std::string config, resolved_config;
  std::string plan, meta, profile, evaluation;  // JSON; empty when the file is not there or no JSON

  // Names of the logs of epochs, validation's without val_, each once: loss first.
  std::vector<std::string> log_names() const;
};

// Throws ConfigError E400 (exit 6) when `folder` holds no run, FileError when a file cannot be
// read.
RunRecord read_run_record(const std::string& folder);

}  // namespace meshtrain
