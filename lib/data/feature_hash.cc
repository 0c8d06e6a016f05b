#include "data/feature_hash.h"

#include <farmhash.h>

#include <bit>
#include <cstring>

namespace meshtrain {
namespace {

// The state of SipHash: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).
struct SipState {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void absorb(uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

uint64_t shift_mix(uint64_t x) {
  return x ^ (x >> 47);
}

// One fingerprint of two, as TensorFlow's crossed features combine them.
uint64_t combined(uint64_t first, uint64_t second) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995u;
  const uint64_t mixed = ((first ^ kFactor) ^ (shift_mix(second * kFactor) * kFactor)) * kFactor;
  return shift_mix(shift_mix(mixed) * kFactor);
}

}  // namespace

uint64_t farm_hash(std::string_view text) {
  return util::Fingerprint64(text.data(), text.size());
}

uint64_t sip_hash(std::string_view text, uint64_t key0, uint64_t key1) {
  SipState state{key0 ^ 0x736f6d6570736575u, key1 ^ 0x646f72616e646f6du, key0 ^ 0x6c7967656e657261u,
                 key1 ^ 0x7465646279746573u};
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    state.absorb(word);
  }
  uint64_t last = static_cast<uint64_t>(text.size()) << 56;
  for (size_t i = 0; at + i < text.size(); ++i) {
    last |= static_cast<uint64_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  }
  state.absorb(last);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) {
    state.round();
  }
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

int64_t crossed_bin(std::span<const uint64_t> hashes, int64_t num_bins) {
  uint64_t hash = 0xdecafcaffe;  // TensorFlow's key where none is given
  for (const uint64_t each : hashes) {
    hash = combined(hash, each);
  }
  return static_cast<int64_t>(hash % static_cast<uint64_t>(num_bins));
}

}  // namespace meshtrain
