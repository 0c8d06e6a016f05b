// Collectives between processes that a library (NCCL, MPI) moves as one, over all links at once: an
// exchange would send the same shard to every peer.
//
// When, decided by the program alone, so that all processes decide the same:
//   all_gather      on GPUs: all devices hold shards of one size, so that what one process gives is
//                   as much as what any other of its group gives. The bits are those of an
//                   exchange.
//   all_reduce      with fast reductions; with fixed ones its second half, an all-gather, on GPUs,
//                   of results whose elements divide by the number of processes.
//   reduce_scatter  on GPUs, with fast reductions.
// All others are exchanges: all_to_all and permute, which NCCL itself makes of sends and receives,
// whatever a processor computes but its fast all-reduce, and sums with fixed reductions.
#pragma once

#include <vector>

#include "exec/lower.h"
#include "ir/op.h"
#include "ir/program.h"

namespace meshtrain {

Reduction reduction_of(Combine combine);

// Lowers the step, if it is one of these; false: it takes exchanges.
bool lower_to_library(StepContext& context);

// Whether all of so many processes add up as many elements of each shard.
bool has_equal_shares(const Buffer& sums, size_t processes);

// The lists of processes, this one among them, between which GPUs have a library move something in
// steps of this program: each once, in an order in which all processes find theirs.
std::vector<std::vector<int>> library_groups(const Program& program);

// Of each of `whole`, in equal runs one for each of `ranks`, this process has the one at its place:
// afterwards it has all.
void gather_runs(KernelSpecs& specs, const std::vector<View>& whole, int64_t place,
                 const std::vector<int>& ranks);

}  // namespace meshtrain
