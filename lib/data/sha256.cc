// The low-level functions need 40 KB of the static library, the newer ones bring in all of it (or a
// shared one, 1.3 ms at each start of the program).
#define OPENSSL_SUPPRESS_DEPRECATED
#include "data/sha256.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <vector>

namespace meshtrain {

std::string sha256_of(const InputFile& file) {
  SHA256_CTX context;
  SHA256_Init(&context);
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(buffer.size(), file.size() - at));
    file.read_at(at, buffer.data(), count);
    SHA256_Update(&context, buffer.data(), count);
  }
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &context);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += fmt::format("{:02x}", byte);
  }
  return hex;
}

}  // namespace meshtrain
