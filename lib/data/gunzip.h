// Gzip files, through zlib.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace meshtrain {

// The bytes of a file in order, decompressed when it is gzip (several members are concatenated).
class GunzipBytes {
 public:
  // `code`: of the ConfigError for compressed data that end early or are damaged.
  GunzipBytes(const InputFile& file, const char* code);
  ~GunzipBytes();
  GunzipBytes(const GunzipBytes&) = delete;
  GunzipBytes& operator=(const GunzipBytes&) = delete;

  bool is_gzip() const { return is_gzip_; }
  // Reads up to `num_bytes`; fewer only at the end.
  size_t read(std::byte* to, size_t num_bytes);

 private:
  bool inflate_some(std::byte* to, size_t room, size_t* done);

  const InputFile& file_;
  const char* code_;
  bool is_gzip_ = false;
  bool ended_ = false;
  uint64_t offset_ = 0;  // in the file
  std::vector<std::byte> input_;
  z_stream stream_ = {};
};

// The first bytes of a file, at most `most`, decompressed when it is gzip.
std::string unpacked_beginning(const InputFile& file, size_t most, const char* code);

}  // namespace meshtrain
