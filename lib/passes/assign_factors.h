// Assigns axes to the factors of an op when its tensors disagree.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "passes/factors.h"

namespace meshtrain {

// Greedy: takes the best split of a tensor's propagated sharding, as long as factor and axes are
// free. Weights precede other tensors, then tensors with more bytes, then pass factors. `is_weight`
// is indexed like graph.values. Only the op and the values of the node matter.
FactorAxes assign_factors(const Graph& graph, const Node& node, const ShardingRule& rule,
                          const std::vector<bool>& is_weight, const DeviceMesh& mesh);

}  // namespace meshtrain
