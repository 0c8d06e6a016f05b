// The order of nodes, where it matters for memory.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Moves each layout change of the backward phase directly behind its value. A gradient is then
// reduced as soon as it exists, and its unreduced form is freed (ZeRO-2 and up). Without this pass,
// gradients are reduced where the update reads them (ZeRO-1).
Graph reduce_gradients_early(Graph graph);

// Makes the backward pass gather each sharded weight again, so that the gathered weight is freed
// after the forward pass (FSDP's reshard_after_forward; Zhao et al., arXiv:2304.11277, 3.2.1). Only
// some layers' weights are then in memory, for 50% more communication. The weight that the backward
// pass reads first is kept, since it would be gathered again at once. All weights are kept when a
// device gathers at most `least` bytes of weights. Needs propagated shardings.
Graph gather_weights_again(Graph graph, const DeviceMesh& mesh, int64_t least);

}  // namespace meshtrain
