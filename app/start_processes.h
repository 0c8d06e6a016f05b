// How the processes of a run meet before its verb and part after it. What a launcher started is
// found in the environment; one process alone does nothing of this.
#pragma once

#include <string_view>

#include "cli.h"
#include "exit_report.h"

namespace meshtrain {

// First of all: what all processes would say alike, rank 0 says.
void mute_nonzero_ranks();

// For the verbs that several processes do together: they meet (MPI, or TCP where each has a GPU),
// compare what they were started with, watch each other from then on, try their transfers and share
// the cores of their host; arguments.processes are then theirs, and only rank 0 shows anything.
// Other verbs are for rank 0 alone: false where this process has nothing to do.
//
// Throws ConfigError E612 (what the environment says cannot be), E613 (no such network interface),
// E614 (processes cannot find each other; all exit 8), E611 (they were not started alike, exit 2),
// E605 (transfers bring something else, exit 8), and what makes a config unfit; all of it before
// anything is started.
bool start_processes(Arguments& arguments, std::string_view verb);

// After the verb, whether it ended well or not; shows `report` once, and returns the exit code. A
// process that fails by itself takes the others with it and does not return.
int end_processes(const Processes& processes, const ExitReport& report);

}  // namespace meshtrain
