// How the program ends after an exception: what is shown, and the exit code.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace meshtrain {

struct ExitReport {
  int exit_code = 0;
  std::string text;     // whole lines; empty when there is nothing to say
  std::string message;  // for the run's record
  // All processes of the run end like this, at the same place: no message to others is needed.
  bool is_common = false;
};

// For the exception of the catch clause that calls it. `started`: something is on disk.
ExitReport current_exit_report(bool started);

// "error[E142]: ..." of what is no mistake in the config; the code is that of its kind.
std::string error_text(ExitCode code, std::string_view message);

// What another process said as it ended, or all of them did; shown as it is, by all.
class RemoteExit : public Error {
 public:
  RemoteExit(int exit_code, const std::string& text)
      : Error(static_cast<ExitCode>(exit_code), text) {}
};

}  // namespace meshtrain
