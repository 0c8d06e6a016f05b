// SIGINT and SIGTERM ask a run to stop; their handler sets a flag and nothing else. The loop looks
// at it between steps, so a step is never left half done.
#pragma once

#include "base/error.h"

namespace meshtrain {

// From now on the first SIGINT or SIGTERM sets the flag and a second one of the same kind ends the
// process at once, as the system does by default.
void catch_stop_signals();

// The signal that asked to stop, or 0.
int stop_signal();
// As if none had come.
void forget_stop_signal();

// Throws StopRequested when a signal asked to stop; `done` says what was finished before
// ("step 12 of epoch 3").
void throw_if_stopped(const std::string& done);

// The run ends on request, exit code 130 (SIGINT) or 143 (SIGTERM).
class StopRequested : public Error {
 public:
  using Error::Error;
};

}  // namespace meshtrain
