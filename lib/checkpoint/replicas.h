// Silent hardware errors: what several processes hold of a variable must be the same bits. Each
// hashes its shards; who has another hash than the rest is named.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "exec/executor.h"

namespace meshtrain {

// This process's shards of a variable, one after the other, in memory of the host.
using ShardsOf = std::function<const std::byte*(int variable)>;

// A hash of each shard that other processes hold, too, in the order of the variables.
std::string replica_hashes(const VariableStore& store, const ShardsOf& shards);
// The same of the variables as they are now.
std::string replica_hashes(VariableStore& store);

// `hashes`: what each process gave, by rank. "`d1/kernel` differs between rank 0 and rank 3" of the
// first variable of which not all have the same; empty when all agree. Of more than two holders the
// odd ones are named.
std::string replica_difference(const VariableStore& store, const std::vector<std::string>& hashes);

}  // namespace meshtrain
