// SHA-256 and HMAC-SHA-256, through OpenSSL's libcrypto.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace meshtrain {

class InputFile;

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::string_view bytes);
// RFC 2104.
Sha256 hmac_sha256(const Sha256& key, std::string_view message);
// In a time that does not depend on where the two differ.
bool is_same_digest(const Sha256& a, const Sha256& b);

// 64 hexadecimal digits.
std::string to_text(const Sha256& digest);
// Of a whole file, as text. Throws FileError.
std::string sha256_of(const InputFile& file);

}  // namespace meshtrain
