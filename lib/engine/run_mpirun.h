// A run whose processes mpirun starts, with what it makes of signals and exit codes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/mpirun.h"
#include "config/config.h"

namespace meshtrain {

// Throws ConfigError E140 for what mpirun cannot do: a host that it does not understand, a signal
// that it does not pass on.
void check_mpirun(const MpirunOptions& mpirun, const SignalChanges& changes);

// Of a process that run_mpirun() started: whether it is one, and what it ends with where it would
// with `code`, so that run_mpirun() can tell it from what mpirun says.
bool is_launched();
int exit_code_in_launch(int code);

using SayLine = std::function<void(const std::string&)>;  // for people

// Starts processes of this program with `words` and waits for their end. The exit code is one of
// this program: 8 for what mpirun reports by itself. Throws ConfigError E614 where Open MPI is
// missing, here or on another host.
ChildrenEnd run_mpirun(const MpirunOptions& mpirun, const std::vector<std::string>& words,
                       const Environment& environment, const SignalChanges& changes,
                       const SayLine& say, bool verbose);

}  // namespace meshtrain
