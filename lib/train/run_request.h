// RunRequest: what is asked of a run beside its config: where it goes, what it resumes, how it
// tells of itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/restore.h"
#include "config/load.h"
#include "engine/engine.h"
#include "record/console.h"

namespace meshtrain {

struct RunRequest {
  LoadOptions load;        // the config's files, or its text, and the overrides
  std::string shown_name;  // of the config, on the first screen: its files, or the run it came from
  std::string version;     // of the program: "0.1.0"
  std::vector<std::string> command_line;  // kept in the run's meta.json
  std::string run_dir;                    // -o; "": as the config says
  RestoreOptions restore;
  EngineOptions engine;  // threads, processes
  ConsoleOptions console;
  std::optional<Verbosity> verbosity;  // in place of run.verbose
  bool prints_events = false;          // events as JSON on stdout, in place of text
  bool tells_more = false;             // the plan and each save, on stderr
  // Warnings of the config, the model and the data, before the first step.
  std::function<void(const Diagnostics&)> warn = [](const Diagnostics&) {};
  double started_at = 0;  // when the process began, on the console's clock
};

}  // namespace meshtrain
