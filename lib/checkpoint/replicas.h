// Detects silent hardware errors: replicas of a shard on several processes must be the same bits.
// Each process hashes its shards; a hash that differs from the others is reported.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "exec/executor.h"

namespace meshtrain {

// Returns this process's shards of a variable, one after the other, in memory of the host.
using ShardsOf = std::function<const std::byte*(int variable)>;

// Returns a hash of each shard that other processes also hold, in the order of the variables.
std::string replica_hashes(const VariableStore& store, const ShardsOf& shards);
// The same for the current values of the variables.
std::string replica_hashes(VariableStore& store);

// `hashes`: replica_hashes() of each process, by rank. Returns "`d1/kernel` differs between rank 0
// and rank 3" for the first variable that differs; empty when all agree. With more than two
// holders, the minority is named.
std::string replica_difference(const VariableStore& store, const std::vector<std::string>& hashes);

}  // namespace meshtrain
