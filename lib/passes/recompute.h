// Forward values that the backward pass computes again because that is cheaper than to read them.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// In a graph with gradients, after partition: where elementwise backward nodes read results of a
// few additions and multiplications of one array, each group of them reads that array and computes
// the results again, in registers. The same values bit for bit; of 16 bits as a kernel has them
// before it rounds its results. An array that nothing else keeps for the backward pass is kept only
// in place of more bytes. GELU keeps 3 arrays in place of 4, layer normalization 2 in place of 3.
Graph recompute_arithmetic(Graph graph, const DeviceMesh& mesh);

}  // namespace meshtrain
