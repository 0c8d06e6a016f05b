// The classes of a run's data by name: a number must mean the same class in all of them.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"

namespace meshtrain {

// Returns whether `dataset` has the classes `wanted` with the same numbers, where both are known.
// If not, adds E324, which names missing and new classes. `parts`: "the test data and the
// run".
bool check_classes(const Dataset& dataset, const std::vector<std::string>& wanted,
                   const std::string& parts, Diagnostics& diagnostics);

}  // namespace meshtrain
