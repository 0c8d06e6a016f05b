// The one symbol of the library.
#include "comm/mpi/library.h"

#include <mpi.h>

#include "comm/mpi/group.h"

#ifndef OPEN_MPI
#error "the launcher is recognised by variables of Open MPI; build with its mpi.h"
#endif

namespace meshtrain::mpi {
namespace {

class Library final : public MpiLibrary {
 public:
  std::unique_ptr<ProcessGroup> start() override { return std::make_unique<MpiGroup>(); }
  std::string version() override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<size_t>(length));
    return all.substr(0, all.find(','));
  }
};

}  // namespace
}  // namespace meshtrain::mpi

extern "C" __attribute__((visibility("default"))) meshtrain::MpiLibrary* meshtrain_mpi(int abi) {
  static meshtrain::mpi::Library library;
  return abi == meshtrain::kMpiAbi ? &library : nullptr;
}
