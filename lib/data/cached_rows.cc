#include "data/cached_rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// A file without a name.
class NamelessFile {
 public:
  NamelessFile(const std::string& folder, uint64_t num_bytes) : folder_(folder) {
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // not on this file system
      std::string path = folder + "/.meshtrain-cache-XXXXXX";
      fd_ = ::mkostemp(path.data(), O_CLOEXEC);
      if (fd_ >= 0) {
        ::unlink(path.c_str());
      }
    }
    // A full disk is better found now than in the middle.
    if (fd_ < 0 || (num_bytes > 0 && ::fallocate(fd_, 0, 0, static_cast<off_t>(num_bytes)) != 0 &&
                    errno != EOPNOTSUPP && errno != ENOSYS)) {
      const int error_number = errno;
      if (fd_ >= 0) {
        ::close(fd_);
      }
      failed(num_bytes, error_number);
    }
  }
  ~NamelessFile() { ::close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  void write(uint64_t offset, const std::byte* from, size_t num_bytes) const {
    while (num_bytes > 0) {
      const ssize_t n = ::pwrite(fd_, from, num_bytes, static_cast<off_t>(offset));
      if (n < 0 && errno != EINTR) {
        failed(num_bytes, errno);
      }
      const size_t done = n < 0 ? 0 : static_cast<size_t>(n);
      from += done;
      offset += done;
      num_bytes -= done;
    }
  }

  void read(uint64_t offset, std::byte* to, size_t num_bytes) const {
    while (num_bytes > 0) {
      const ssize_t n = ::pread(fd_, to, num_bytes, static_cast<off_t>(offset));
      if ((n < 0 && errno != EINTR) || n == 0) {
        throw FileError(ExitCode::kData, "cannot read the data's cache in", folder_,
                        n < 0 ? errno : EIO);
      }
      const size_t done = n < 0 ? 0 : static_cast<size_t>(n);
      to += done;
      offset += done;
      num_bytes -= done;
    }
  }

 private:
  [[noreturn]] void failed(uint64_t num_bytes, int error_number) const {
    throw FileError(ExitCode::kWriteFailed,
                    fmt::format("cannot write {} of the data's cache (data.cache) in",
                                format_bytes(static_cast<int64_t>(num_bytes))),
                    folder_, error_number);
  }

  std::string folder_;
  int fd_ = -1;
};

class MemoryStore {
 public:
  MemoryStore(const Rows& rows, const std::string&) {
    const size_t num_bytes = rows.row_bytes() * static_cast<size_t>(rows.size());
    bytes_.reset(static_cast<std::byte*>(std::calloc(std::max<size_t>(num_bytes, 1), 1)));
    if (bytes_ == nullptr) {
      throw RuntimeFailure(ExitCode::kMesh,
                           fmt::format("cannot allocate {} for data.cache",
                                       format_bytes(static_cast<int64_t>(num_bytes))));
    }
  }
  void write(uint64_t offset, const std::byte* from, size_t num_bytes) {
    std::memcpy(bytes_.get() + offset, from, num_bytes);
  }
  void read(uint64_t offset, std::byte* to, size_t num_bytes) const {
    std::memcpy(to, bytes_.get() + offset, num_bytes);
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;  // not a tensor, whose memory is written at once
};

class FileStore {
 public:
  FileStore(const Rows& rows, const std::string& folder)
      : file_(folder, rows.row_bytes() * static_cast<size_t>(rows.size())) {}
  void write(uint64_t offset, const std::byte* from, size_t num_bytes) {
    file_.write(offset, from, num_bytes);
  }
  void read(uint64_t offset, std::byte* to, size_t num_bytes) const {
    file_.read(offset, to, num_bytes);
  }

 private:
  NamelessFile file_;
};

// Rows that are read from `rows` when they are first asked for, and from a store afterwards.
template <class Store>
class CachedRows final : public Rows {
 public:
  CachedRows(RowsPtr rows, const std::string& folder)
      : rows_(std::move(rows)),
        shape_(rows_->shape()),
        dtype_(rows_->dtype()),
        store_(*rows_, folder),
        has_(static_cast<size_t>(size()), false) {}

  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return rows_->cost(); }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    if (!is_complete_.load(std::memory_order_acquire)) {
      fetch(order);
    }
    const size_t bytes = row_bytes();
    for (size_t i = 0, count = 1; i < order.size(); i += count) {
      check_row(order[i]);
      count = 1;
      while (i + count < order.size() && order[i + count] == order[i + count - 1] + 1) {
        ++count;
      }
      check_row(order[i + count - 1]);
      store_.read(static_cast<uint64_t>(order[i]) * bytes, to + i * bytes, count * bytes);
    }
  }

 private:
  // Stores the rows of `order` that are not there yet.
  void fetch(std::span<const int64_t> order) const {
    const std::lock_guard lock(mutex_);
    std::vector<int64_t> missing;
    for (const int64_t row : order) {
      check_row(row);
      if (!has_[static_cast<size_t>(row)]) {
        has_[static_cast<size_t>(row)] = true;
        missing.push_back(row);
      }
    }
    if (missing.empty()) {
      return;
    }
    const size_t bytes = row_bytes();
    std::vector<std::byte> read(missing.size() * bytes);
    try {
      rows_->read(missing, read.data());
      for (size_t i = 0; i < missing.size(); ++i) {
        store_.write(static_cast<uint64_t>(missing[i]) * bytes, read.data() + i * bytes, bytes);
      }
    } catch (...) {
      for (const int64_t row : missing) {
        has_[static_cast<size_t>(row)] = false;
      }
      throw;
    }
    count_ += missing.size();
    if (count_ == has_.size()) {
      is_complete_.store(true, std::memory_order_release);
    }
  }

  RowsPtr rows_;
  Shape shape_;
  DType dtype_;
  mutable Store store_;
  mutable std::mutex mutex_;
  mutable std::vector<bool> has_;  // by row
  mutable size_t count_ = 0;
  mutable std::atomic<bool> is_complete_{false};
};

std::string cache_folder(const std::string& cache) {
  if (cache.find('/') != std::string::npos) {
    return cache;
  }
  for (const char* variable : {"MESHTRAIN_CACHE", "TMPDIR"}) {
    const char* given = std::getenv(variable);
    if (given != nullptr && *given != '\0') {
      return given;
    }
  }
  return "/var/tmp";
}

RowsPtr kept_in_file(RowsPtr rows, const std::string& cache) {
  const bool in_order = rows->cost() == Rows::Cost::kInOrder;
  auto kept = std::make_shared<CachedRows<FileStore>>(std::move(rows), cache_folder(cache));
  if (in_order) {
    kept->for_each_block([](int64_t, const HostTensor&) {});
  }
  return kept;
}

RowsPtr kept_in_memory(RowsPtr rows) {
  if (rows->cost() == Rows::Cost::kComputed) {
    return std::make_shared<CachedRows<MemoryStore>>(std::move(rows), "");
  }
  return make_rows(rows->read_range(0, rows->size()));
}

}  // namespace

RowsPtr cache_rows(RowsPtr rows, const DataConfig& data) {
  const Rows::Cost cost = rows->cost();
  const std::string& cache = data.cache.value;
  if (cost == Rows::Cost::kMemory) {
    return rows;
  }
  const int64_t limit = data.memory > 0 ? data.memory.value : available_memory() / 4;
  const bool is_small =
      static_cast<int64_t>(rows->row_bytes()) <= limit / std::max<int64_t>(1, rows->size());
  if (cache == "memory") {
    return kept_in_memory(std::move(rows));
  }
  if (cache == "none" || cache.empty()) {
    if (is_small && (cache.empty() || cost == Rows::Cost::kInOrder)) {
      return kept_in_memory(std::move(rows));
    }
    return cost == Rows::Cost::kInOrder ? kept_in_file(std::move(rows), cache) : rows;
  }
  std::error_code error;
  if (cache != "file" && !std::filesystem::is_directory(cache, error)) {
    throw ConfigError("E113", data.cache.loc,
                      fmt::format("`data.cache`: there is no folder `{}`", cache))
        .help("make it, or write memory, file or none");
  }
  return kept_in_file(std::move(rows), cache);
}

}  // namespace meshtrain
