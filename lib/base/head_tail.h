// The head-tail order of the steps of a sequence, for context parallelism: 2 n chunks, of which
// shard i has chunks i and 2 n - 1 - i. Under a causal mask a step works with those before it, so
// that all shards have the same work; of shards in order the last one has nearly twice the mean.
// Source: the order of Llama 3 ("The Llama 3 Herd of Models", 2024, section 3.3.2).
#pragma once

#include <cstdint>

namespace meshtrain {

// The step that place `place` of the order has. `steps` is divisible by 2 `shards`; of one shard,
// steps are in order.
inline int64_t head_tail_step(int64_t place, int64_t steps, int64_t shards) {
  const int64_t chunk = steps / (2 * shards), shard = place / (2 * chunk);
  const int64_t within = place % (2 * chunk);
  return within < chunk ? shard * chunk + within
                        : (2 * shards - 1 - shard) * chunk + within - chunk;
}

}  // namespace meshtrain
