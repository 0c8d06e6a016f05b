// The file in which a run stores what it learned from its training data: data.json in the run's
// folder and in each checkpoint, NAME.data.json beside an exported file NAME of weights.
#pragma once

#include <string>

#include "checkpoint/learned_json.h"
#include "config/config.h"
#include "config/data_sizes.h"

namespace meshtrain {

// Returns the stored values for the weights at `path`; null when there are none. A run and a
// checkpoint have a data.json. For a file NAME of weights the first of these counts:
// NAME.data.json, the data.json of the run that contains the file, and, for a file named
// weights.safetensors, the data.json beside it. Throws as parse_learned(), and E404, E406 or E409
// for what cannot be read.
LearnedPtr learned_beside(const std::string& path);

// Writes NAME.data.json beside a file NAME of weights and returns its path. With null, removes the
// one of an earlier export and returns "". Throws FileError (exit 74).
std::string write_learned_beside(const std::string& weights, const LearnedPtr& learned);

// As DataSizesReader: of what is stored beside `weights`, else of the training data as they are
// now.
DataSizes sizes_of_training_data(const DataConfig& data, double held_out,
                                 const std::string& weights);

// Adds W328 when `source` learns from data: nothing is stored in `from`, a run or its weights, so
// the values come from the training data as they are now.
void warn_of_nothing_learned(const ConfigObject& source, const std::string& from,
                             Diagnostics& warnings);

}  // namespace meshtrain
