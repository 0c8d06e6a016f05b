// Checksums of changed files, made right again: without it nearly every change of a PNG or zip file
// is refused for its checksum, and what lies behind is never reached.
#pragma once

#include <cstdint>
#include <span>

namespace meshtrain::fuzz {

// Of PNG files those of all chunks, of zip archives those and the sizes of all entries whose places
// are within the file; other files stay as they are. In place; never an error.
void repair_checksums(std::span<uint8_t> bytes);

}  // namespace meshtrain::fuzz
