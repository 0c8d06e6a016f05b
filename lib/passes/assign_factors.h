// Which axes split each factor of an op, where its tensors do not agree.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "passes/factors.h"

namespace meshtrain {

// Greedily the best split that some tensor of the node is to have (its propagated sharding), as
// long as factor and axes are still free: weights before other tensors, then the one of more bytes,
// then those of factors that pass through. `is_weight`: beside graph.values. Of the node its op and
// values are looked at.
FactorAxes assign_factors(const Graph& graph, const Node& node, const ShardingRule& rule,
                          const std::vector<bool>& is_weight, const DeviceMesh& mesh);

}  // namespace meshtrain
