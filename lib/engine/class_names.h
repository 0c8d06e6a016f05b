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

// Adds E324 for the first class of `dataset` that is another number in `model_names`, the config's
// `model.class_names`. Names that the data do not have are names for show. `part`: "the train
// data".
void check_model_names(const Dataset& dataset, const std::vector<std::string>& model_names,
                       const std::string& part, Diagnostics& diagnostics);

}  // namespace meshtrain
