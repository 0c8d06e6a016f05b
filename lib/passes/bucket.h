// Bucketing: collectives of one kind over the same axes become one call over many tensors, so that
// their number per step does not depend on the number of tensors.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

constexpr int64_t kBucketBytes = int64_t{25} << 20;  // as PyTorch DDP; more hides no better

// Upper bound on the result of a bucket of gathers. Twice as many bytes of weights are in memory:
// one bucket in use, and one being gathered.
constexpr int64_t kGatheredBytes = 8 * kBucketBytes;

// Returns the bytes of one device's shard of a sharded value.
int64_t local_bytes(const Value& value, const DeviceMesh& mesh);

// Merges all_reduce, reduce_scatter and all_gather nodes of equal axes, dtype, combine and phase
// when no member's reader precedes the last member. The later collectives of a gradient with
// several (all_reduce, then all_gather) are deferred, so that each kind is still one bucket. So are
// collectives of losses and metrics. Gathers of weights run where the first of them is needed. A
// bucket is one node with an operand and a result per tensor; the attrs `dims` and `to_dims` are
// lists beside them.
Graph bucket_collectives(Graph graph, const DeviceMesh& mesh, int64_t bucket_bytes = kBucketBytes);

}  // namespace meshtrain
