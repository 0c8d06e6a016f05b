// The order of nodes, where it matters for memory.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Moves each layout change of the backward phase to right behind the value it changes, so that a
// gradient is reduced, and its unreduced form is freed, as soon as it exists (ZeRO-2 and up).
// Without it gradients are reduced where the update reads them (ZeRO-1).
Graph reduce_gradients_early(Graph graph);

// Gives the backward pass its own use of each weight that is stored in parts and gathered to
// compute with, so that the gathered weight is freed after the forward pass (FSDP's
// reshard_after_forward; Zhao et al., arXiv:2304.11277, 3.2.1): weights take memory by layers, for
// half as much more to send. The weight that the backward pass reads first is kept: it would be
// gathered at once again; and so are all where a device gathers `least` bytes of weights or fewer.
// Needs propagated shardings.
Graph gather_weights_again(Graph graph, const DeviceMesh& mesh, int64_t least);

}  // namespace meshtrain
