// The hashes of Keras' Hashing and HashedCrossing: the same bins as there, on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace meshtrain {

// FarmHash's 64-bit fingerprint.
uint64_t farm_hash(std::string_view text);

// SipHash-2-4 with a key of two numbers.
uint64_t sip_hash(std::string_view text, uint64_t key0, uint64_t key1);

// The bin of a combination of values, each given by its farm_hash().
int64_t crossed_bin(std::span<const uint64_t> hashes, int64_t num_bins);

}  // namespace meshtrain
