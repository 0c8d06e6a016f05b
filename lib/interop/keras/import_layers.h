// Single layers of Keras' JSON on their way into a model here.
#pragma once

#include <string>
#include <vector>

#include "interop/keras/import_graph.h"

namespace meshtrain {

// Refuses a layer whose class there is not here: `imported`, which was `layer` in the JSON.
void check_class(const Json& layer, const KerasLayer& imported, KerasJson& json);

// Makes a MixUp or CutMix an Identity: within a model of Keras they mix inputs only, which no
// training wants. Predictions are the same. Returns what to say of it.
std::string drop_mixing(KerasLayer& layer);

// As further_outputs() of the layer that is going to be.
std::vector<std::string> further_outputs_of(const KerasLayer& layer, const CallKeywords& keywords);

// The model within a TimeDistributed, or null.
const Json* distributed_model(const Json& layer);

// The names of an operation's inputs in its expression: x, or x1, x2, ... by their places. There
// names of layers come first, so a layer called x2 must have the second place.
std::vector<std::string> place_inputs(const KerasModel& model, std::vector<int>& inputs);

}  // namespace meshtrain
