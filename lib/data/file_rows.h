// Arrays that stay in their files: read some rows at a time, so that data of any size work.
//
// Files are read, never mapped: a mapped file that shrinks kills the process. The system keeps what
// was read in its page cache, as it does for mapped files.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/file.h"
#include "data/rows.h"
#include "tensor/read_error.h"

namespace meshtrain {

// A file that must stay as it is while it is used. One that is replaced under its name is read on
// as it was.
class WatchedFile {
 public:
  WatchedFile(InputFile file, SourceLoc loc);

  const InputFile& file() const { return file_; }
  // Reads exactly `num_bytes` from `offset`, then looks at the file's size and time: ConfigError
  // E321 when they are not those it was opened with.
  void read_at(uint64_t offset, std::byte* to, size_t num_bytes) const;
  void check_unchanged() const;  // E321 as said

  struct ByteRange {
    uint64_t offset = 0;
    std::byte* to = nullptr;
    size_t num_bytes = 0;
  };
  // The same for several ranges. Those that are not in the page cache are asked for together before
  // the first of them is waited for: 128 rows of 784 bytes from a cold virtual disk took 3 to 5 ms
  // so, 20 ms and more one after the other.
  void read(std::vector<ByteRange> ranges) const;

 private:
  bool read_cached(const ByteRange& range) const;

  InputFile file_;
  SourceLoc loc_;
  int64_t changed_at_ = 0;  // nanoseconds
};

// How an array lies in a file: row-major, its elements possibly to be converted.
struct StoredArray {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::function<void(std::byte*, size_t)> convert;  // stored bytes to those in memory; may be empty
};

// Rows at `offset` of a file. `check` sees the stored bytes when all rows are read at once, in
// order; it may be empty.
RowsPtr stored_rows(std::shared_ptr<const WatchedFile> file, StoredArray array, uint64_t offset,
                    std::function<void(std::span<const std::byte>)> check = {});

// Rows of a file that can be read from its beginning only. `open` gives the elements' bytes, as
// often as it is called.
RowsPtr stream_rows(StoredArray array, std::function<std::unique_ptr<ByteReader>()> open);

}  // namespace meshtrain
