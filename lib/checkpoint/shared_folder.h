// Checks that all processes of a run share the folder of the checkpoints.
#pragma once

#include <string>
#include <vector>

#include "engine/coordinator.h"

namespace meshtrain {

// Returns for each rank whether it has access. Rank 0 writes a file with a random name and content.
// The others wait for this file up to `seconds`, since network file systems are slow. Throws
// FileError (exit 74) when it cannot be written.
std::vector<bool> who_sees(const Coordinator& coordinator, const std::string& folder,
                           double seconds);
// Throws also ConfigError E452 (exit 6), which names the ranks without access.
void check_shared_folder(const Coordinator& coordinator, const std::string& folder,
                         double seconds = 10);

}  // namespace meshtrain
