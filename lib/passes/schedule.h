// The order of nodes, where it matters for memory.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Moves each layout change of the backward phase to right behind the value it changes, so that a
// gradient is reduced, and its unreduced form is freed, as soon as it exists (ZeRO-2 and up).
// Without it gradients are reduced where the update reads them (ZeRO-1).
Graph reduce_gradients_early(Graph graph);

}  // namespace meshtrain
