#include "comm/mpi/load.h"

#include <cstdlib>

#include "base/diagnostic.h"
#include "base/library_part.h"
#include "comm/mpi/library.h"

#ifndef MESHTRAIN_MPI_MISSING  // why the build can make no MPI library; "" where it can
#define MESHTRAIN_MPI_MISSING ""
#define MESHTRAIN_MPI_CURE ""
#endif

namespace meshtrain {
namespace {

LibraryPart mpi_part() {
  return {.file = "libmeshtrain_mpi.so",
          .variable = "MESHTRAIN_MPI_LIBRARY",
          .kind = "MPI",
          .symbol = kMpiSymbol,
          .abi = kMpiAbi,
          .target = "meshtrain_mpi",
          .missing = MESHTRAIN_MPI_MISSING,
          .cure = MESHTRAIN_MPI_CURE};
}

ConfigError alone(int size, const std::string& reason, const std::string& help) {
  ConfigError problem("E614", {},
                      fmt::format("each of {} processes believes to be alone: {}", size, reason));
  if (!help.empty()) {
    problem.help(help);
  }
  return problem;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> mpi_settings(int local_size, int cores,
                                                              const std::string& interface) {
  std::vector<std::pair<std::string, std::string>> settings = {
      {"OMPI_MCA_coll", "^han,adapt"},
      {"OMPI_MCA_oob_tcp_keepalive_time", "10"},
      {"OMPI_MCA_oob_tcp_keepalive_intvl", "5"},
      {"OMPI_MCA_oob_tcp_keepalive_probes", "3"},
      {"PMIX_MCA_gds", "hash"},
  };
  if (local_size > cores) {
    settings.emplace_back("OMPI_MCA_mpi_yield_when_idle", "1");
  }
  if (!interface.empty()) {
    settings.emplace_back("OMPI_MCA_btl_tcp_if_include", interface);
    settings.emplace_back("OMPI_MCA_oob_tcp_if_include", interface);
    settings.emplace_back("NCCL_SOCKET_IFNAME", "=" + interface);  // that name, not a prefix
  }
  return settings;
}

std::string mpi_version(std::string& reason) {
  MpiLibrary* const library = load_part<MpiLibrary>(mpi_part(), reason);
  return library == nullptr ? "" : library->version();
}

std::shared_ptr<ProcessGroup> make_mpi_group(const LaunchEnvironment& environment, int cores,
                                             const std::string& interface) {
  for (const auto& [name, value] : mpi_settings(environment.local_size, cores, interface)) {
    ::setenv(name.c_str(), value.c_str(), 0);
  }
  std::string reason;
  MpiLibrary* const library = load_part<MpiLibrary>(mpi_part(), reason);
  if (library == nullptr) {
    throw alone(environment.size, reason, "");
  }
  std::shared_ptr<ProcessGroup> group = library->start();
  if (group->size() != environment.size) {
    throw alone(
        environment.size,
        fmt::format("MPI counts {}; this meshtrain uses {}", group->size(), library->version()),
        "mixed MPI libraries? Start them with the mpirun of that library, or srun "
        "--mpi=pmix");
  }
  return group;
}

}  // namespace meshtrain
