// How linear_cross_entropy and its gradients cut their tokens.
#pragma once

#include <cstdint>

namespace meshtrain {

// Tokens of a shard whose logits exist at once, of chunks of about equal size. `least` is for the
// machine. The more tokens, the fewer passes over the table and its gradient: at least `features`,
// and as many as make a million logits.
int64_t head_chunk(int64_t tokens, int64_t features, int64_t classes, int64_t least);

}  // namespace meshtrain
