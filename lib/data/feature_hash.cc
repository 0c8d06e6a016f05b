#include "data/feature_hash.h"

#include <farmhash.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <memory>

#include "base/error.h"

namespace meshtrain {
namespace {

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

// SipHash-2-4, which OpenSSL has as a code of 8 bytes for a key of 16.
uint64_t sip_hash(std::string_view text, uint64_t key0, uint64_t key1) {
  static EVP_MAC* const kind = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> hash(EVP_MAC_CTX_new(kind),
                                                                       EVP_MAC_CTX_free);
  const uint64_t key[] = {key0, key1};
  uint64_t code = 0;
  size_t size = sizeof code;
  const OSSL_PARAM settings[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                                 OSSL_PARAM_construct_end()};
  const bool ok =
      hash != nullptr &&
      EVP_MAC_init(hash.get(), reinterpret_cast<const unsigned char*>(key), sizeof key, settings) &&
      EVP_MAC_update(hash.get(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size()) &&
      EVP_MAC_final(hash.get(), reinterpret_cast<unsigned char*>(&code), &size, sizeof code);
  MESHTRAIN_CHECK(ok, "libcrypto has no SipHash");
  return code;
}

int64_t crossed_bin(std::span<const uint64_t> hashes, int64_t num_bins) {
  uint64_t hash = 0xdecafcaffe;  // TensorFlow's key where none is given
  for (const uint64_t each : hashes) {
    hash = combined(hash, each);
  }
  return static_cast<int64_t>(hash % static_cast<uint64_t>(num_bins));
}

}  // namespace meshtrain
