#include "data/file_rows.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <zlib.h>

#include <algorithm>
#include <mutex>

#include "base/text.h"

namespace meshtrain {
namespace {

int64_t change_time(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

struct stat status_of(const InputFile& file) {
  struct stat status;
  if (::fstat(file.descriptor(), &status) != 0) {
    throw FileError(ExitCode::kData, "cannot read", file.path(), errno);
  }
  return status;
}

uint32_t add_crc(uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

class StoredRows final : public Rows {
 public:
  StoredRows(std::shared_ptr<const WatchedFile> file, StoredArray array, uint64_t offset,
             std::optional<StoredChecksum> checksum)
      : file_(std::move(file)),
        array_(std::move(array)),
        offset_(offset),
        checksum_(std::move(checksum)) {}

  DType dtype() const override { return array_.dtype; }
  const Shape& shape() const override { return array_.shape; }
  Cost cost() const override { return Cost::kFile; }

  // Rows that follow each other are read together.
  void read(std::span<const int64_t> order, std::byte* to) const override {
    const size_t bytes = row_bytes();
    std::vector<WatchedFile::ByteRange> ranges;
    size_t count = 1;
    for (size_t i = 0; i < order.size(); i += count) {
      check_row(order[i]);
      count = 1;
      while (i + count < order.size() && order[i + count] == order[i + count - 1] + 1) {
        ++count;
      }
      check_row(order[i + count - 1]);
      ranges.push_back(
          {offset_ + static_cast<uint64_t>(order[i]) * bytes, to + i * bytes, count * bytes});
    }
    file_->read(std::move(ranges));
    if (checksum_ && count == order.size() && count > 0) {
      add_to_checksum(order[0], {to, count * bytes});
    }
    if (array_.convert) {
      array_.convert(to, order.size() * bytes);
    }
  }

 private:
  // Reads in another order leave what was added so far as it is.
  void add_to_checksum(int64_t first, std::span<const std::byte> bytes) const {
    const std::lock_guard lock(mutex_);
    if (first != next_) {
      return;
    }
    crc_ = add_crc(next_ == 0 ? checksum_->before : crc_, bytes);
    next_ += static_cast<int64_t>(bytes.size() / row_bytes());
    if (next_ == size() && crc_ != checksum_->whole) {
      checksum_->refuse();
    }
  }

  std::shared_ptr<const WatchedFile> file_;
  StoredArray array_;
  uint64_t offset_;
  std::optional<StoredChecksum> checksum_;
  mutable std::mutex mutex_;
  mutable int64_t next_ = 0;  // the row that the checksum waits for
  mutable uint32_t crc_ = 0;
};

class StreamRows final : public Rows {
 public:
  StreamRows(StoredArray array, std::function<std::unique_ptr<ByteReader>()> open)
      : array_(std::move(array)), open_(std::move(open)) {}

  DType dtype() const override { return array_.dtype; }
  const Shape& shape() const override { return array_.shape; }
  Cost cost() const override { return Cost::kInOrder; }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    const std::lock_guard lock(mutex_);
    const size_t bytes = row_bytes();
    try {
      for (size_t i = 0; i < order.size(); ++i) {
        check_row(order[i]);
        go_to(order[i]);
        stream_->read(to + i * bytes, bytes);
        ++at_;
        if (at_ == size()) {
          stream_->finish();
          stream_.reset();
        }
      }
    } catch (...) {
      stream_.reset();
      throw;
    }
    if (array_.convert) {
      array_.convert(to, order.size() * bytes);
    }
  }

 private:
  void go_to(int64_t row) const {
    if (stream_ == nullptr || row < at_) {
      stream_ = open_();
      at_ = 0;
    }
    if (at_ < row) {
      skipped_.resize(row_bytes());
    }
    for (; at_ < row; ++at_) {
      stream_->read(skipped_.data(), skipped_.size());
    }
  }

  StoredArray array_;
  std::function<std::unique_ptr<ByteReader>()> open_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<ByteReader> stream_;
  mutable int64_t at_ = 0;  // the row that follows in the stream
  mutable std::vector<std::byte> skipped_;
};

}  // namespace

WatchedFile::WatchedFile(InputFile file, SourceLoc loc)
    : file_(std::move(file)), loc_(std::move(loc)), changed_at_(change_time(status_of(file_))) {}

void WatchedFile::read_at(uint64_t offset, std::byte* to, size_t num_bytes) const {
  read({{offset, to, num_bytes}});
}

// Whether the page cache had all of the range.
bool WatchedFile::read_cached(const ByteRange& range) const {
  const iovec place = {range.to, range.num_bytes};
  const ssize_t n =
      ::preadv2(file_.descriptor(), &place, 1, static_cast<off_t>(range.offset), RWF_NOWAIT);
  return n >= 0 && static_cast<size_t>(n) == range.num_bytes;
}

void WatchedFile::read(std::vector<ByteRange> ranges) const {
  if (ranges.size() > 1) {
    // In the order of the file: a third of the time where all are in the page cache.
    std::sort(ranges.begin(), ranges.end(),
              [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
    std::erase_if(ranges, [this](const ByteRange& range) { return read_cached(range); });
    for (const ByteRange& range : ranges) {
      ::posix_fadvise(file_.descriptor(), static_cast<off_t>(range.offset),
                      static_cast<off_t>(range.num_bytes), POSIX_FADV_WILLNEED);
    }
  }
  try {
    for (const ByteRange& range : ranges) {
      file_.read_at(range.offset, range.to, range.num_bytes);
    }
  } catch (const FileError&) {
    check_unchanged();  // a file that was cut short says so
    throw;
  }
  check_unchanged();
}

void WatchedFile::check_unchanged() const {
  const struct stat now = status_of(file_);
  const auto size = static_cast<uint64_t>(now.st_size);
  if (size == file_.size() && change_time(now) == changed_at_) {
    return;
  }
  const double seconds = static_cast<double>(change_time(now) - changed_at_) * 1e-9;
  throw ConfigError(
      "E321", loc_,
      size != file_.size()
          ? fmt::format("`{}` changed while it was in use: it had {} bytes, now {}", file_.path(),
                        format_thousands(static_cast<int64_t>(file_.size())),
                        format_thousands(static_cast<int64_t>(size)))
          : fmt::format("`{}` changed while it was in use: its time of change is {:+.3f} s "
                        "off that of the start",
                        file_.path(), seconds))
      .help(
          "write new data under another name, or let `data.cache: memory` or `file` keep the old");
}

RowsPtr stored_rows(std::shared_ptr<const WatchedFile> file, StoredArray array, uint64_t offset,
                    std::optional<StoredChecksum> checksum) {
  return std::make_shared<StoredRows>(std::move(file), std::move(array), offset,
                                      std::move(checksum));
}

RowsPtr stream_rows(StoredArray array, std::function<std::unique_ptr<ByteReader>()> open) {
  return std::make_shared<StreamRows>(std::move(array), std::move(open));
}

}  // namespace meshtrain
