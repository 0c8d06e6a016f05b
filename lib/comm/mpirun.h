// The command line of mpirun (Open MPI) that starts the processes of a run, with settings under
// which nothing waits for ever.
#pragma once

#include <string>
#include <vector>

#include "comm/child_processes.h"
#include "comm/hosts.h"

namespace meshtrain {

struct MpirunOptions {
  std::vector<Host> hosts;  // none: those that Slurm gave
  std::string agent;        // starts a command on another host; "": ssh
  std::string interface;    // the only network interface; "": any
};

// Throws ConfigError E140 for a host that mpirun does not understand.
void check_mpirun_hosts(const std::vector<Host>& hosts);

// Processes of this program with `words`. Throws ConfigError E614 without an mpirun on PATH.
ChildCommand mpirun_command(const MpirunOptions& options, const std::vector<std::string>& words,
                            Environment environment);

}  // namespace meshtrain
