// Weight files by Keras path, to and from a model.
#pragma once

#include <string>

#include "base/diagnostic.h"
#include "train/step_runner.h"

namespace meshtrain {

// Fills every layer weight from a .safetensors or .npz file; element types are converted. Throws
// ConfigError (exit 6) E404..E406, E415 for the file, and E410 with every weight that the file
// lacks, has in another shape, or has in excess; nothing is written then. `loc`: where the path was
// given; a relative path in a config file starts at the file's folder.
void load_weights(StepRunner& runner, const std::string& path, const SourceLoc& loc);

// All layer weights, whole, each in its own dtype; replaces `path` whole or not at all. Throws
// FileError (exit 74).
void save_weights(const StepRunner& runner, const std::string& path);

}  // namespace meshtrain
