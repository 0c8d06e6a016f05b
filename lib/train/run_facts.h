// What must be alike in all processes of a run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/handshake.h"
#include "config/load.h"

namespace meshtrain {

// A command that several processes run together, as each of them was given it.
struct SharedCommand {
  std::string name;                // "bench comm"
  std::string version;             // of the program
  std::vector<std::string> words;  // after the program's name
  std::string flags;               // as written, that change the run and are no keys of the config
  std::function<LoadOptions()> load;  // the config, or what changes in one of another place
  bool has_config = true;             // the former
  bool begins_run = false;            // a new one, unless the config says otherwise
  std::string resume_command;         // "the same command with --resume"
};

// The build, the command with its flags, the resolved config, the kind of devices. Throws
// ConfigError with every problem of the config, and of devices that do not split over so many
// processes.
std::vector<Fact> run_facts(const SharedCommand& command, int processes);

// Whether the config asks for GPUs, or `auto` finds one here; true where the config is of another
// place.
bool wants_gpu(const SharedCommand& command, int processes);

}  // namespace meshtrain
