// Elementwise fusion: nodes of a partitioned graph that run as one pass over memory.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Returns the group of each node, kNone for a node that runs alone. A group's nodes are
// elementwise, and their results have one global shape and one sharding. A group can run at the
// position of its last node, because no other node reads its results earlier. Scalar constants are
// excluded: the tape of a group holds them as numbers.
std::vector<int> fuse_groups(const Graph& graph);

}  // namespace meshtrain
