#include "checkpoint/replicas.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/snapshot.h"

namespace meshtrain {
namespace {

AxisMask axes_of(const Variable& variable) {
  return variable.layout.storage.used_axes();
}

// Whether other processes have the shards of a variable that this one has: they differ along an
// axis that does not split it. Caches of decode steps differ, as the texts of the processes do.
bool is_shared(const MeshPart& part, const Variable& variable) {
  return is_state(variable) && (part.crossing() & ~axes_of(variable)) != 0;
}

// The distinct shards that a process holds, in the order of its memory.
std::vector<int64_t> shards_of(const MeshPart& part, AxisMask axes) {
  std::vector<int64_t> out;
  for (int64_t shard = 0; shard < part.num_shards(axes); ++shard) {
    out.push_back(distinct_shard(part.mesh(), axes, part.device_of(axes, shard)));
  }
  return out;
}

// The ranks whose hash is not that of most; of two as many, that of the lower rank counts.
std::string odd_ranks(const std::map<int, uint64_t>& hashes) {
  std::map<uint64_t, int> votes;
  for (const auto& [rank, hash] : hashes) {
    ++votes[hash];
  }
  uint64_t right = hashes.begin()->second;
  for (const auto& [rank, hash] : hashes) {
    right = votes[hash] > votes[right] ? hash : right;
  }
  std::vector<std::string> odd;
  int witness = -1;
  for (const auto& [rank, hash] : hashes) {
    if (hash != right) {
      odd.push_back(fmt::format("rank {}", rank));
    } else if (witness < 0) {
      witness = rank;
    }
  }
  return fmt::format("differs between rank {} and {}", witness, join(odd, ", "));
}

}  // namespace

std::string replica_hashes(const VariableStore& store, const ShardsOf& shards) {
  std::string out;
  for (size_t v = 0; v < store.variables().size(); ++v) {
    if (!is_shared(store.part(), store.variables()[v])) {
      continue;
    }
    const AxisMask axes = axes_of(store.variables()[v]);
    const std::byte* from = shards(static_cast<int>(v));
    const auto bytes = static_cast<size_t>(store.shard_bytes(static_cast<int>(v)));
    for (int64_t p = 0; p < store.part().num_shards(axes); ++p) {
      const uint64_t hash = hash_bytes(from + static_cast<size_t>(p) * bytes, bytes);
      out.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
    }
  }
  return out;
}

std::string replica_hashes(VariableStore& store) {
  std::vector<std::byte> copy;
  return replica_hashes(store, [&](int variable) -> const std::byte* {
    if (store.device() == nullptr) {
      return store.data(variable);
    }
    copy.resize(static_cast<size_t>(store.map(variable).total_bytes()));
    store.copy_shards(variable, copy.data());
    return copy.data();
  });
}

std::string replica_difference(const VariableStore& store, const std::vector<std::string>& hashes) {
  std::vector<MeshPart> parts;
  for (int rank = 0; rank < store.part().processes(); ++rank) {
    parts.push_back(store.part().of(rank));
  }
  std::vector<size_t> at(parts.size(), 0);  // places in the texts
  for (const Variable& variable : store.variables()) {
    if (!is_shared(store.part(), variable)) {
      continue;
    }
    const AxisMask axes = axes_of(variable);
    std::map<int64_t, std::map<int, uint64_t>> by_shard;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      for (const int64_t shard : shards_of(parts[rank], axes)) {
        uint64_t hash = 0;
        MESHTRAIN_CHECK(at[rank] + sizeof(hash) <= hashes[rank].size(), "hashes of rank {}", rank);
        std::memcpy(&hash, hashes[rank].data() + at[rank], sizeof(hash));
        at[rank] += sizeof(hash);
        by_shard[shard][static_cast<int>(rank)] = hash;
      }
    }
    for (const auto& [shard, of_ranks] : by_shard) {
      const uint64_t first = of_ranks.begin()->second;
      if (std::any_of(of_ranks.begin(), of_ranks.end(),
                      [&](const auto& each) { return each.second != first; })) {
        return fmt::format("`{}` {}", variable.path, odd_ranks(of_ranks));
      }
    }
  }
  return "";
}

}  // namespace meshtrain
