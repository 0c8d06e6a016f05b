// Stable hashes: the same value on every machine, in every version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace meshtrain {

// xxh3, 64 bits.
uint64_t hash_bytes(const void* data, size_t num_bytes);
inline uint64_t hash_text(std::string_view text) {
  return hash_bytes(text.data(), text.size());
}

}  // namespace meshtrain
