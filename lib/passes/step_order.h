// Whether the steps of samples may come in another order than theirs.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace meshtrain {

// `graph`: outputs of a model for inputs (B, T, ...), whose steps are in another order.
// `positions`: the scope of nodes that compute the positions (T,) or (1, T) of steps in this order.
//
// Returns why an output is not what it would be in order: an op joins steps ("`lstm` (scan_rnn)
// joins steps"), reads a table of steps by their places, or an output has no steps. "": each output
// (B, T, ...) is in the same other order. Attention may join steps where its order is that of
// positions.
std::string step_order_obstacle(const Graph& graph, std::string_view positions);

}  // namespace meshtrain
