// A file or folder of samples to predict as a data source.
#pragma once

#include <string>

#include "config/config.h"

namespace meshtrain {

// Returns a source on which data.transform acts as it did in training: a file of data.train's kind,
// an array, an archive with "x" or with arrays named as the model's inputs, an IDX file, or an
// image or a folder of images in the size of the model's Input. The first bytes say which. Throws
// ConfigError (exit 3): E300 for what cannot be read, E327 for images that the model cannot take.
ConfigObject input_source(const std::string& path, const Config& config);

}  // namespace meshtrain
