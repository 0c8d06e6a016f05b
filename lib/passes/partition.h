// The SPMD partitioner: turns a graph whose values have propagated shardings into one whose nodes
// each run on local shards, with explicit collectives between them.
//
//   1 each op's factors get axes: those all tensors agree on; where they differ, the split that
//     most bytes already have (weights first) wins and the rest is resharded
//   2 contracted and reduced factors leave the result partial; a partial value with one use
//     travels through linear elementwise ops and is reduced before anything else reads it
//   3 reshards of one value to one sharding are shared
//   4 a reshard becomes the planner's collectives. Each says of what it is (attr `of`: a variable
//     or an op's path) and why it is there (`cause`): the origins (propagate.h) of its axes where
//     the value was split or became partial, and in the layout that it is brought to
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Requires propagate(). The result satisfies verify_sharded().
Graph partition(Graph graph, const DeviceMesh& mesh);

}  // namespace meshtrain
