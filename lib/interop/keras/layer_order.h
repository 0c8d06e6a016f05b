// The order of layers in Keras' functional models, which the groups of a weight file are counted
// in. Source: Keras 3.15.1 ops/function.py map_graph, layers/layer.py __call__ (masks and casts).
#pragma once

#include <vector>

#include "nn/model.h"

namespace meshtrain {

// Whether an output is named otherwise than its layer: Keras' model then returns a map.
bool has_named_outputs(const Model& model);

// Returns the order of Keras' `model.layers` for the functional model with these calls: indices of
// the first call of each layer (inputs included). Calls are sorted by depth above the outputs, then
// in the order in which the outputs reach them. Operations that Keras adds by itself count: those
// that compute masks of steps, and casts of mixed precision.
std::vector<int> keras_layer_order(const Model& model);

}  // namespace meshtrain
