// The config as a checkpoint keeps it.
#pragma once

#include <string>

#include "config/load.h"

namespace meshtrain {

// Complete, and with the places of the data, so that it can be used from any folder: `data.dir`,
// `fit.initial_weights` and the paths that mean another folder (an extended file's, the command
// line's) are absolute.
std::string portable_config(LoadOptions options, const Config& config, bool with_origin = false);

}  // namespace meshtrain
