// The proof that a config gives the same numbers on every mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "config/load.h"

namespace meshtrain {

struct MeshProofOptions {
  LoadOptions load;
  int64_t steps = 4;                           // of whole batches
  double tolerance = 1e-9;                     // largest difference, relative to numbers above 1
  std::function<void(std::string_view)> show;  // a line for each mesh
};

// Some steps of a config in float64, and one of the smaller last batch of an epoch, on one device
// and on its mesh and the other meshes of as many devices. Returns whether losses, metrics, weights
// and optimizer state agree. Throws ConfigError E140 for a mesh of one device, E316 for data that
// fill no batch.
bool verify_meshes(const MeshProofOptions& options);

}  // namespace meshtrain
