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
// `hash` with `value` added to what it stands for; the order of the values matters. The finalizer
// of splitmix64: every bit of both changes every bit of the result.
inline uint64_t hash_mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash * 0x9e3779b97f4a7c15u + value + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace meshtrain
