// The low-level functions need 40 KB of the static library, the newer ones bring in all of it (or a
// shared one, 1.3 ms at each start of the program).
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <vector>

#include "base/file.h"

namespace meshtrain {
namespace {

class Hasher {
 public:
  Hasher() { SHA256_Init(&context_); }
  void add(const void* bytes, size_t count) { SHA256_Update(&context_, bytes, count); }
  Sha256 digest() {
    Sha256 digest;
    SHA256_Final(digest.data(), &context_);
    return digest;
  }

 private:
  SHA256_CTX context_;
};

// The digest of the key, each byte of it changed by `pad`, and then of `message`.
Sha256 padded(const Sha256& key, unsigned char pad, std::string_view message) {
  std::array<unsigned char, SHA256_CBLOCK> block;
  block.fill(pad);
  for (size_t i = 0; i < key.size(); ++i) {
    block[i] = static_cast<unsigned char>(key[i] ^ pad);
  }
  Hasher hasher;
  hasher.add(block.data(), block.size());
  hasher.add(message.data(), message.size());
  return hasher.digest();
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
  Hasher hasher;
  hasher.add(bytes.data(), bytes.size());
  return hasher.digest();
}

Sha256 hmac_sha256(const Sha256& key, std::string_view message) {
  const Sha256 inner = padded(key, 0x36, message);
  return padded(key, 0x5c, {reinterpret_cast<const char*>(inner.data()), inner.size()});
}

bool is_same_digest(const Sha256& a, const Sha256& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string to_text(const Sha256& digest) {
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += fmt::format("{:02x}", byte);
  }
  return hex;
}

std::string sha256_of(const InputFile& file) {
  Hasher hasher;
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(buffer.size(), file.size() - at));
    file.read_at(at, buffer.data(), count);
    hasher.add(buffer.data(), count);
  }
  return to_text(hasher.digest());
}

}  // namespace meshtrain
