// The directory at the end of a zip archive, for values that libzip does not return: the declared
// number of members before memory is allocated, and the offsets of stored members' bytes.
//
// Format: PKWARE's APPNOTE.TXT, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16 and 4.5.3.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/file.h"

namespace meshtrain {

struct ZipDirectory {
  uint64_t begin = 0;  // in the file
  uint64_t size = 0;   // bytes
};

// Throws ConfigError `damaged` for a file without the directory's end or with claims that cannot
// be.
ZipDirectory read_zip_directory(const InputFile& file, const char* damaged);

// Returns the offset of the `num_bytes` bytes of stored member `index`, in the directory's order.
// Throws ConfigError `damaged` when they are not within the file.
uint64_t member_offset(const InputFile& file, const ZipDirectory& directory, size_t index,
                       uint64_t num_bytes, const char* damaged);

}  // namespace meshtrain
