// Collectives between processes that a library (NCCL, MPI) moves as one, over all links at once: an
// exchange would send the same piece to every peer.
//
// When, decided by the program alone, so that all processes decide the same:
//   all_gather      on GPUs: all devices hold pieces of one size, so that what one process gives is
//                   as much as what any other of its group gives. The bits are those of an
//                   exchange.
//   all_reduce      with fast reductions; with fixed ones its second half, an all-gather, on GPUs,
//                   of results whose elements divide by the number of processes.
//   reduce_scatter  on GPUs, with fast reductions.
// All others are exchanges: all_to_all and permute, which NCCL itself makes of sends and receives,
// whatever a processor computes but its fast all-reduce, and sums with fixed reductions.
#pragma once

#include "exec/prepare.h"
#include "ir/op.h"

namespace meshtrain {

Reduction reduction_of(Combine combine);

// Makes the step, if it is one of these; false: it is made of exchanges.
bool make_by_library(StepContext& context);

// Of each of `whole`, in equal runs one for each of `ranks`, this process has the one at its place:
// afterwards it has all.
void gather_runs(KernelMaker& maker, const std::vector<View>& whole, int64_t place,
                 const std::vector<int>& ranks);

}  // namespace meshtrain
