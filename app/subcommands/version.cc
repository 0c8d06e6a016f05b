// meshtrain version: what this binary is made of.
#include <fmt/format.h>

#include "backend/gpu/load.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct VersionOptions {};

int run_version(const VersionOptions&, Invocation&) {
  std::string reason;
  out_stream().write(fmt::format(
      "meshtrain {}\ncompiler {} {}\nbuild {}\ndevices {}\n", MESHTRAIN_VERSION, MESHTRAIN_COMPILER,
      __VERSION__, MESHTRAIN_BUILD_TYPE, gpu::has_library(reason) ? "cpu gpu" : "cpu"));
  return 0;
}

}  // namespace

void add_version(Subcommands& to) {
  to.add<VersionOptions>("version", "Version and how the binary was built", run_version);
}

}  // namespace meshtrain
