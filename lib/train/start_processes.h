// How the processes of a run meet before its work and part after it. What a launcher started is
// found in the environment; one process alone does nothing of this.
#pragma once

#include <optional>

#include "comm/process_group.h"
#include "train/exit_report.h"
#include "train/run_facts.h"

namespace meshtrain {

// Throws ConfigError E140, on every process, where a launcher started several for a subcommand that
// starts processes itself.
void check_is_alone(const std::string& subcommand);

// First of all: what all processes would say alike, rank 0 says.
void mute_nonzero_ranks();

// For a command that several processes run together: they meet (MPI, or TCP where each has a GPU),
// compare what they were started with, watch each other from then on, try their transfers and share
// the cores of their host. `processes` are then theirs, `num_workers` the threads of this one, and
// only rank 0 shows anything. Rank 0 alone runs any other command (nullopt): false where this
// process has nothing to do.
//
// Throws ConfigError E612 (what the environment says cannot be), E613 (no such network interface),
// E614 (processes cannot find each other; all exit 8), E611 (they were not started alike, exit 2),
// E605 (transfers bring something else, exit 8), and what makes a config unfit; all of it before
// anything is started.
bool start_processes(const std::optional<SharedCommand>& command, Processes& processes,
                     int& num_workers);

// After the work, whether it ended well or not; shows `report` once, and returns the exit code. A
// process that fails by itself takes the others with it and does not return.
int end_processes(const Processes& processes, const ExitReport& report);

}  // namespace meshtrain
