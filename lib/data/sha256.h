// SHA-256, through OpenSSL's libcrypto.
#pragma once

#include <string>

#include "base/file.h"

namespace meshtrain {

// Returns the hash of a whole file as 64 hexadecimal digits. Throws FileError.
std::string sha256_of(const InputFile& file);

}  // namespace meshtrain
