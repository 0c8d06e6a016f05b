// A config's model as Keras' own JSON.
#pragma once

#include <string>

#include "config/config.h"
#include "nn/model.h"

namespace meshtrain {

// What keras.models.model_from_json and the config.json of a .keras archive hold: architecture and
// compile(). Throws ConfigError E417 (exit 6) for what Keras' JSON cannot say.
std::string keras_json(const Config& config, const Model& model);

// metadata.json of a .keras archive; `saved` in seconds since 1970.
std::string keras_metadata(int64_t saved);

}  // namespace meshtrain
