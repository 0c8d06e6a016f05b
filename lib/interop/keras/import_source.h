// The files of a model that Keras saved.
#pragma once

#include <optional>
#include <string>

#include "interop/keras/weights.h"

namespace meshtrain {

struct KerasSource {
  std::string path, json, version;
  std::optional<H5File> weights;
  std::string weights_path;  // the file that `weights` are of
};

// Reads `model`: a .keras, or a .json with `weights`, or with the .weights.h5 beside it. Throws
// ConfigError E140 for another kind of file, E404 and E405 for one that cannot be read.
KerasSource read_keras_source(const std::string& model, const std::string& weights);

}  // namespace meshtrain
