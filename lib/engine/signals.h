// Signals ask a run to save, to stop or to say where it is. Their handler sets flags and nothing
// else; the loop looks at them between steps, so a step is never left half done.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace meshtrain {

// SIGTERM, SIGUSR1 and SIGINT save and leave, SIGUSR2 and SIGHUP save, SIGQUIT reports, where
// `changes` does not say otherwise. A second signal of a kind that leaves ends the process at once,
// as the system does by default.
void catch_run_signals(const SignalChanges& changes);
// What one of those does then.
SignalAction signal_action(int number, const SignalChanges& changes);
bool asks_to_stop(SignalAction action);
std::vector<int> changed_signals(const SignalChanges& changes);
// Whether catch_run_signals() would leave a signal ignored that is so now (nohup).
bool stays_ignored(int number, const SignalChanges& changes);

// The first SIGINT or SIGTERM sets the flag of stop_signal(), for verbs that have nothing to save.
void catch_stop_signals();

// The signal that asked to stop, or 0; and whether it asks to save before.
int stop_signal();
bool stop_saves();
std::string signal_name(int number);  // "SIGTERM"
// Whether one asked for a checkpoint or a report since the last call.
bool take_checkpoint_request();
bool take_report_request();
// As if none had come.
void forget_stop_signal();

// Throws StopRequested when a signal asked to stop; `done` says what was finished before, and what
// becomes of weights if any were trained ("step 12 of epoch 3; weights were not saved").
void throw_if_stopped(const std::string& done);
[[noreturn]] void throw_stopped(int number, const std::string& done);

// The run ends on request: exit code 75 when it can be resumed, else 130 (SIGINT) or 143 (SIGTERM).
class StopRequested : public Error {
 public:
  using Error::Error;
};

}  // namespace meshtrain
