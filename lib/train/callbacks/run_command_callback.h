// Runs a command of the user after each epoch, with the epoch's logs as JSON on standard input.
#pragma once

#include "train/callbacks/callback.h"

namespace meshtrain {

class RunCommand : public Callback {
 public:
  RunCommand(const RunCommandOptions& options, CallbackContext& context, std::string state_name)
      : Callback(context, std::move(state_name)), options_(options) {}

  // One process of a run runs it. Its failure is a warning; throws RuntimeFailure (exit 7) with
  // `on_error: stop`.
  void on_epoch_end(EpochReport& report) override;

 private:
  RunCommandOptions options_;
};

}  // namespace meshtrain
