// How many inputs the layers take, and what they are called where `inputs` is a map.
#pragma once

#include "base/diagnostic.h"
#include "config/config.h"

namespace meshtrain {

// Reports a wrong number of inputs, and names that the layer does not know (E121). The inputs of a
// map come in the order in which the layer takes them; attention keeps the names (input_roles).
// `acting`: the layer itself, or the one that a Call uses; null where that is not known.
void bind_inputs(LayerConfig& layer, const ConfigObject* acting, Diagnostics& diagnostics);

}  // namespace meshtrain
