#include "gpu_processes.h"

#include "train/distribution.h"

namespace meshtrain {

int gpu_processes(const Arguments& arguments, const Config& config) {
  if (arguments.processes.group != nullptr || arguments.dry_run) {
    return 1;
  }
  Diagnostics diagnostics;
  const Distribution distribution = make_distribution(config, 1, diagnostics);
  // What is wrong with the mesh is said with everything else that is wrong.
  return diagnostics.has_errors() ? 1 : processes_to_start(distribution.devices);
}

}  // namespace meshtrain
