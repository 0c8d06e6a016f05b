// Elementwise fusion: which nodes of a partitioned graph run together as one pass over memory.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// The group of each node, kNone for a node that runs alone. A group's nodes are elementwise, their
// results have one global shape and one sharding; a group can run at the place of its last node,
// because nothing outside reads its results before that. Scalar constants are excluded: the tape of
// a group holds them as numbers.
std::vector<int> fuse_groups(const Graph& graph);

}  // namespace meshtrain
