// What train and launch share.
#pragma once

#include <string>

#include "run_flags.h"

namespace meshtrain {

struct TrainOptions {
  ConfigWords config;
  std::string run_dir, resume;
  ResumeFlags resuming;
  EngineFlags engine;
  OutputFlags output;
  int64_t restarts = 0;
  bool dry_run = false;

  void add_to(CLI::App& app);
  LoadOptions load(bool require_data) const { return config.load(require_data, !resume.empty()); }
  LaunchRequest launch_request(const Invocation& invocation) const {
    return {invocation.given_words, restarts, run_dir, resume};
  }
};

int run_train(const TrainOptions& options, Invocation& invocation);

}  // namespace meshtrain
