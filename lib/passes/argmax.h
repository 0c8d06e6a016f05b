// argmax over a dimension that is split over devices.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Replaces each by the smallest place among the largest elements: two all-reduces of the result
// instead of a gather of the operand. A NaN counts as the largest. The graph has propagated
// shardings.
Graph split_argmax(Graph graph);

}  // namespace meshtrain
