// linear_cross_entropy (ir/ops/linear_cross_entropy.cc) as its table is laid out.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Where the classes of the table are split over devices: in parts, which one all-reduce of the
// largest logits and one of the rest put together; dx is reduced once. Elsewhere the gradient takes
// the place of the forward op, where its weights do not depend on the loss. The variables have
// layouts.
Graph place_head_losses(Graph graph, const DeviceMesh& mesh);

}  // namespace meshtrain
