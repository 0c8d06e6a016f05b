// Warnings about data that train without an error, and badly. Each has a cause that is almost
// certainly a mistake.
#pragma once

#include "engine/run_data.h"
#include "engine/setup.h"

namespace meshtrain {

// Adds W322 for bad records that were left out, W312 for classes that a part of the data lacks,
// W319 for sorted classes without shuffling, W212 for a run that changes no weight, W329 for large
// values that a layer takes unscaled, W317 for a last batch that the devices do not share, W331 for
// samples that train and validate or test, W332 for weights that are not used. Reads all labels,
// and the first rows of inputs.
void warn_of_data(const Setup& setup, const RunData& data, Diagnostics& warnings);
// W322 for bad records of `what` ("the input") that were left out.
void warn_of_skipped(const Dataset& dataset, std::string_view what, Diagnostics& warnings);

}  // namespace meshtrain
