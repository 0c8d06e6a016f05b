// Models whose layers follow each other, which a TimeDistributed can be written for one by one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/keras/import_json.h"

namespace meshtrain {

struct ChainLayer {
  const Json* layer = nullptr;
  std::string group;  // of its weights in an HDF5 file
};

// Keras' names of the groups of a list of layers: the class, counted. `path`: of the model around
// them, with a slash at the end.
std::vector<std::string> groups_of_layers(const Json& layers, const std::string& path,
                                          const KerasJson& json);

// The layers of a Sequential, or of a Functional with one input and one output whose layers take
// one tensor each and make no mask, in their order and without Inputs; those of models within it
// stand in their place. Nothing for other models. `path`: of the model's group, with a slash at the
// end.
std::optional<std::vector<ChainLayer>> layers_of_chain(const Json& model, const std::string& path,
                                                       KerasJson& json);

}  // namespace meshtrain
