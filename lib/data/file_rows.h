// Arrays that are read from their files some rows at a time, so that data may have any size.
//
// Files are read, never mapped: a mapped file that shrinks kills the process. The page cache serves
// repeated reads as it does for mapped files.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/file.h"
#include "data/rows.h"
#include "tensor/read_error.h"

namespace meshtrain {

// A file that must not change while it is used. A file that is replaced by rename is still read in
// its old version.
class WatchedFile {
 public:
  WatchedFile(InputFile file, SourceLoc loc);

  const InputFile& file() const { return file_; }
  // Reads exactly `num_bytes` from `offset`, then calls check_unchanged().
  void read_at(uint64_t offset, std::byte* to, size_t num_bytes) const;
  // Throws ConfigError E321 when the file's size or time has changed since it was opened.
  void check_unchanged() const;

  struct ByteRange {
    uint64_t offset = 0;
    std::byte* to = nullptr;
    size_t num_bytes = 0;
  };
  // The same for several ranges. Ranges outside of the page cache are requested together before the
  // first wait: 128 rows of 784 bytes from a cold virtual disk took 3 to 5 ms this way, and more
  // than 20 ms one after the other.
  void read(std::vector<ByteRange> ranges) const;

 private:
  bool read_cached(const ByteRange& range) const;

  InputFile file_;
  SourceLoc loc_;
  int64_t changed_at_ = 0;  // nanoseconds
};

// The format of an array in a file: row-major, with an optional conversion of elements.
struct StoredArray {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::function<void(std::byte*, size_t)> convert;  // stored bytes to those in memory; may be empty
};

// The CRC-32 of stored rows, compared when all of them are first read in order, at once or in
// several reads.
struct StoredChecksum {
  uint32_t before = 0;  // of what precedes the rows
  uint32_t whole = 0;   // of that and the rows
  std::function<void()> refuse;
};

// Returns the rows at `offset` of a file.
RowsPtr stored_rows(std::shared_ptr<const WatchedFile> file, StoredArray array, uint64_t offset,
                    std::optional<StoredChecksum> checksum = {});

// Returns rows of a file that can be read from its beginning only. Each call of `open` returns a
// new reader of the elements' bytes.
RowsPtr stream_rows(StoredArray array, std::function<std::unique_ptr<ByteReader>()> open);

}  // namespace meshtrain
