// A config as an equivalent Keras script: mesh and layouts, model, compile, weights.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "nn/model.h"

namespace meshtrain {

// How the run is spread, as keras.distribution says it.
struct KerasDistribution {
  std::vector<int64_t> mesh_shape;
  std::vector<std::string> axis_names;
  std::string batch_axis;
  struct Layout {
    std::string path;               // of a weight, or "d2/output"; without the model's name
    std::vector<std::string> axes;  // of each dimension; "" = whole
    std::string rule;               // the config's, for a comment
  };
  std::vector<Layout> layouts;
  std::vector<std::string> notes;  // what keras.distribution cannot say
};

// `weights` is the name of a .weights.h5 beside the script; empty: none is loaded. Throws
// ConfigError E417 (exit 6) for what Keras cannot say.
std::string keras_script(const Config& config, const Model& model,
                         const KerasDistribution& distribution, const std::string& source,
                         const std::string& weights);

}  // namespace meshtrain
