// A file of samples to predict as a data source.
#pragma once

#include <string>

#include "config/config.h"

namespace meshtrain {

// Returns a source on which data.transform acts as it did in training: an array, an archive with
// "x" or with arrays named as the model's inputs, or a file of data.train's kind.
ConfigObject input_source(const std::string& path, const DataConfig& data);

}  // namespace meshtrain
