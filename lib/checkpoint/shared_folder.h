// Whether all processes of a run see the folder that they are to write into.
#pragma once

#include <string>
#include <vector>

#include "engine/coordinator.h"

namespace meshtrain {

// Whether each sees it, by rank. Rank 0 writes a file with a name and a content that nobody can
// know; the others wait for it at most so long: network file systems take their time. Throws
// FileError (exit 74) when it cannot be written.
std::vector<bool> who_sees(const Coordinator& coordinator, const std::string& folder,
                           double seconds);
// Throws also ConfigError E452 (exit 6) naming who does not see it.
void check_shared_folder(const Coordinator& coordinator, const std::string& folder,
                         double seconds = 10);

}  // namespace meshtrain
