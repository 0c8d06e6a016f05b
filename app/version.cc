// meshtrain version: what this binary is made of.
#include <fmt/format.h>

#include "backend/gpu/load.h"
#include "cli.h"

namespace meshtrain {

int run_version() {
  std::string reason;
  out_stream().write(fmt::format("meshtrain {}\ncompiler {} {}\nbuild {}\ndevices {}\n", kVersion,
                                 MESHTRAIN_COMPILER, __VERSION__, MESHTRAIN_BUILD_TYPE,
                                 gpu::has_library(reason) ? "cpu gpu" : "cpu"));
  return 0;
}

}  // namespace meshtrain
