// Measured collectives as a table and as JSON: `meshtrain bench comm`.
#pragma once

#include <string>
#include <vector>

#include "plan/measure_comm.h"

namespace meshtrain {

// Both end with the lines for a file of hardware. `devices` in words.
std::string comm_text(const std::vector<CommSeries>& all, const CommOptions& options,
                      const std::string& devices);
std::string comm_json(const std::vector<CommSeries>& all, const CommOptions& options,
                      const std::string& devices);

}  // namespace meshtrain
