// Finds the library that speaks MPI. Nothing of MPI is in the process before this is called.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/environment.h"
#include "comm/process_group.h"

namespace meshtrain {

// All processes that the launcher started; collective. mpi_settings() are set in the environment of
// this process first, where they are not set. `cores` are those of this host. Throws ConfigError
// E614 (exit 8) without the library, when it cannot be loaded, and when each process finds itself
// alone; RuntimeFailure (exit 8) with MPI's own words.
std::shared_ptr<ProcessGroup> make_mpi_group(const LaunchEnvironment& environment, int cores,
                                             const std::string& interface);

// Returns what MPI says of itself, without starting it: "Open MPI v4.1.4"; "" with the reason where
// there is none.
std::string mpi_version(std::string& reason);

// Returns settings of Open MPI for its processes and its mpirun: environment variables and values,
// to be set unless the user's environment has them:
//   waiting gives way to others where `local_size` processes have fewer `cores`
//   Open MPI 4.1's older collectives, without its first "han" and "adapt"
//   keepalive, so that a cut cable ends a daemon's connection within half a minute, not in 8
//   PMIx keeps its data in the processes, not in files that those of one host share
//   `interface` alone, for MPI, its daemons and NCCL, unless it is empty
std::vector<std::pair<std::string, std::string>> mpi_settings(int local_size, int cores,
                                                              const std::string& interface);

}  // namespace meshtrain
