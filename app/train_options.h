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
  int64_t measured_steps = 0;  // --profile-steps
  bool dry_run = false;

  void add_to(CLI::App& app);
  LoadOptions load(bool require_data) const;
  // Of --profile-steps N or --profile N; 0: none. Throws ConfigError E140.
  int64_t profile_steps() const;
  LaunchRequest launch_request(const Invocation& invocation) const {
    return {invocation.given_words, restarts, run_dir, resume};
  }
};

int run_train(const TrainOptions& options, Invocation& invocation);

}  // namespace meshtrain
