// Signals that make a run save, stop or report. The handler only sets flags; the training loop
// reads them between steps, so that no step is interrupted.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace meshtrain {

// By default SIGTERM, SIGUSR1 and SIGINT save and stop, SIGUSR2 and SIGHUP save, SIGQUIT reports;
// `changes` overrides this. A second stop signal ends the process at once, as by default.
void catch_run_signals(const SignalChanges& changes);
// Returns the action of a signal.
SignalAction signal_action(int number, const SignalChanges& changes);
bool asks_to_stop(SignalAction action);
std::vector<int> changed_signals(const SignalChanges& changes);
// Returns whether catch_run_signals() leaves a currently ignored signal (nohup) ignored.
bool stays_ignored(int number, const SignalChanges& changes);

// Makes the first SIGINT or SIGTERM set stop_signal(), for subcommands without anything to save.
void catch_stop_signals();

// The stop signal that was received, or 0; and whether to save before stopping.
int stop_signal();
bool stop_saves();
std::string signal_name(int number);  // "SIGTERM"
// Return whether a checkpoint or a report was requested since the last call.
bool take_checkpoint_request();
bool take_report_request();
// Clears a received stop signal.
void forget_stop_signal();

// Throws StopRequested after a stop signal. `done` names the work done and whether weights were
// saved ("step 12 of epoch 3; weights were not saved").
void throw_if_stopped(const std::string& done);
[[noreturn]] void throw_stopped(int number, const std::string& done);

// The run ends on request: exit code 75 when it can be resumed, else 130 (SIGINT) or 143 (SIGTERM).
class StopRequested : public Error {
 public:
  using Error::Error;
};

}  // namespace meshtrain
