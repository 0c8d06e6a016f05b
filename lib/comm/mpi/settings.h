// What Open MPI should be told before it starts, in its processes and to its mpirun.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace meshtrain {

// Environment variables and their values, to be set where the user's environment does not have
// them:
//   waiting gives way to others where `local_size` processes have fewer `cores`
//   Open MPI 4.1's older collectives, without its first "han" and "adapt"
//   keepalive, so that a cut cable ends a daemon's connection within half a minute, not in 8
//   PMIx keeps its data in the processes, not in files that those of one host share
//   `interface` alone, for MPI, its daemons and NCCL, unless it is empty
std::vector<std::pair<std::string, std::string>> mpi_settings(int local_size, int cores,
                                                              const std::string& interface);

}  // namespace meshtrain
