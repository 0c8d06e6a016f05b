// The proof that checkpoints and final weights are whole.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace meshtrain {

// Compares every byte of a checkpoint, or of all and of the final weights of a run, with its
// checksums; `show` gets a line for each. Returns what is wrong with those that are damaged or
// cannot be read. Throws ConfigError E400 for a run without a checkpoint.
Diagnostics verify_checkpoints(const std::string& folder,
                               const std::function<void(std::string_view)>& show);

}  // namespace meshtrain
