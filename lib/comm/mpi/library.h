// libmeshtrain_mpi.so as the program sees it: the only part that includes mpi.h.
#pragma once

#include <memory>
#include <string>

#include "comm/process_group.h"

namespace meshtrain {

class MpiLibrary {
 public:
  virtual ~MpiLibrary() = default;
  // Starts MPI, once in a process; collective over all that the launcher started. The group ends it
  // when it is destroyed, together with all others or, when they do not come, alone. Throws
  // RuntimeFailure (exit 8) when a call of MPI fails, as all of the group's functions do; the text
  // is MPI's own.
  virtual std::unique_ptr<ProcessGroup> start() = 0;
  virtual std::string version() = 0;  // "Open MPI v4.1.4, ..."
};

// As backend/gpu/device.h has them for the library that drives GPUs.
constexpr const char* kMpiSymbol = "meshtrain_mpi";
constexpr int kMpiAbi = 1;

}  // namespace meshtrain
