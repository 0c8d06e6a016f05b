// Layers of ids and bins.
#pragma once

#include <vector>

#include "nn/layers.h"

namespace meshtrain {

std::vector<LayerEntry> category_layers();

}  // namespace meshtrain
