// Collectives between processes that a library (NCCL, MPI) runs as one call, over all links at
// once. An exchange would send the same shard to every peer.
//
// The program alone decides which, so that all processes decide alike:
//   all_gather      on GPUs, where every process of the group contributes equally many bytes. The
//                   bits are those of an exchange.
//   all_reduce      with fast reductions. With fixed reductions on GPUs, its second half (an
//                   all-gather), for results whose elements divide by the number of processes.
//   reduce_scatter  on GPUs, with fast reductions.
// Everything else is an exchange: all_to_all and permute (NCCL itself implements them by sends and
// receives), sums with fixed reductions, and on CPUs all but the fast all-reduce.
#pragma once

#include <vector>

#include "exec/lower.h"
#include "ir/op.h"
#include "ir/program.h"

namespace meshtrain {

Reduction reduction_of(Combine combine);

// Lowers the step and returns true, or returns false when it needs exchanges.
bool lower_to_library(StepContext& context);

// Returns whether each of `processes` processes reduces equally many elements of a shard.
bool has_equal_shares(const Buffer& sums, size_t processes);

// Returns the groups of this process for library collectives on GPUs in this program, each once.
// All processes get their common groups in the same order.
std::vector<std::vector<int>> library_groups(const Program& program);

// All-gathers each array of `whole`, which consists of one equal run per rank of `ranks`. This
// process contributes the run at index `place`.
void gather_runs(KernelSpecs& specs, const std::vector<View>& whole, int64_t place,
                 const std::vector<int>& ranks);

}  // namespace meshtrain
