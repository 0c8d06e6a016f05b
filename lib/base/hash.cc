#include "base/hash.h"

#include <xxhash.h>

namespace meshtrain {

uint64_t hash_bytes(const void* data, size_t num_bytes) {
  return XXH3_64bits(data, num_bytes);
}

}  // namespace meshtrain
