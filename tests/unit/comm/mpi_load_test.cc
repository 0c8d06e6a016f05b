// The library that speaks MPI, found, loaded and refused; without a launcher.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "comm/mpi/load.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

Caught load() {
  LaunchEnvironment environment;
  environment.launcher = Launcher::kOpenMpi;
  environment.size = 4;
  return caught([&] { make_mpi_group(environment, 2, ""); });
}

Caught load(const std::string& path) {
  ::setenv("MESHTRAIN_MPI_LIBRARY", path.c_str(), 1);
  return load();
}

bool has_mpi() {
  std::ostringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  return maps.str().find("/libmpi.so") != std::string::npos;
}

TEST_CASE("without the library every process that was started says so") {
  ::unsetenv("MESHTRAIN_MPI_LIBRARY");
  CHECK(load().says("libmeshtrain_mpi.so is missing"));
  const TempFolder folder;
  const Caught error = load(folder.file("absent.so"));
  CHECK(error.code == "E614");
  CHECK(error.exit_code == 8);
  CHECK(error.says("each of 4 processes believes to be alone: cannot load " +
                   folder.file("absent.so")));
  CHECK(
      load("libm.so.6").says("libm.so.6 is not meshtrain's MPI library: it has no meshtrain_mpi"));
}

TEST_CASE("processes of another mpirun find themselves alone") {
  CHECK(!has_mpi());
  const Caught error = load(MESHTRAIN_MPI_LIBRARY);
  CHECK(has_mpi());
  CHECK_MESSAGE(error.code == "E614", error.text);
  CHECK(error.says("each of 4 processes believes to be alone: MPI counts 1"));
  CHECK(error.says("this meshtrain uses Open MPI v"));
  // What was set for MPI stays away from what the environment has.
  CHECK(std::string(std::getenv("OMPI_MCA_coll")) == "^han,adapt");
}

}  // namespace
}  // namespace meshtrain::test
