// Finds the library that speaks MPI. Nothing of MPI is in the process before this is called.
#pragma once

#include <memory>

#include "comm/environment.h"
#include "comm/process_group.h"

namespace meshtrain {

// All processes that the launcher started; collective. mpi_settings() are set in the environment of
// this process first, where they are not set. `cores` are those of this host. Throws ConfigError
// E614 (exit 8) without the library, when it cannot be loaded, and when each process finds itself
// alone; RuntimeFailure (exit 8) with MPI's own words.
std::shared_ptr<ProcessGroup> make_mpi_group(const LaunchEnvironment& environment, int cores,
                                             const std::string& interface);

}  // namespace meshtrain
