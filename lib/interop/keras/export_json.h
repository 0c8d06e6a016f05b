// A config's model as Keras' own JSON.
#pragma once

#include <string>

#include "config/config.h"
#include "nn/model.h"

namespace meshtrain {

// Returns the JSON of keras.models.model_from_json and of config.json in a .keras archive:
// architecture and compile(). Throws ConfigError E417 (exit 6) for values that Keras' JSON cannot
// represent.
std::string keras_json(const Config& config, const Model& model);

// metadata.json of a .keras archive; `saved` in seconds since 1970.
std::string keras_metadata(int64_t saved);

}  // namespace meshtrain
