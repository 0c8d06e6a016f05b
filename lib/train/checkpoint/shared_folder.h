// Whether all processes of a run see the folder that they are to write into.
#pragma once

#include <string>

#include "train/agreement.h"

namespace meshtrain {

// Rank 0 writes a file with a name and a content that nobody can know; the others wait for it at
// most so long: network file systems take their time. Throws ConfigError E452 (exit 6) naming who
// does not see it, or FileError (exit 74) when it cannot be written.
void check_shared_folder(const Agreement& agreement, const std::string& folder,
                         double seconds = 10);

}  // namespace meshtrain
