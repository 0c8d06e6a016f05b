// Ids in memory and in files.
#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "data/file_rows.h"
#include "data/token_file.h"
#include "data/windows.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr int64_t kMaxIds = int64_t{1} << 31;  // what int32 holds

template <class T>
void widen(const std::byte* from, std::span<int32_t> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T id;
    std::memcpy(&id, from + i * sizeof(T), sizeof(T));
    to[i] = static_cast<int32_t>(id);
  }
}

void widen(DType dtype, const std::byte* from, std::span<int32_t> to) {
  switch (dtype) {
    case DType::kUInt8:
      return widen<uint8_t>(from, to);
    case DType::kUInt16:
      return widen<uint16_t>(from, to);
    case DType::kInt32:
      return widen<int32_t>(from, to);
    default:
      return widen<uint32_t>(from, to);
  }
}

class MemoryIds final : public Ids {
 public:
  explicit MemoryIds(HostTensor tensor) : tensor_(std::move(tensor)) {}
  int64_t size() const override { return tensor_.size(); }
  void read(int64_t begin, std::span<int32_t> to) const override {
    const size_t offset = static_cast<size_t>(begin) * dtype_size(tensor_.dtype());
    widen(tensor_.dtype(), tensor_.bytes() + offset, to);
  }

 private:
  HostTensor tensor_;
};

// One file of ids.
struct IdFile {
  WatchedFile file;
  TokenLayout layout;
  int64_t first = 0;  // id of the whole sequence with which it begins
};

class FileIds final : public Ids {
 public:
  FileIds(const std::vector<std::string>& paths, DType dtype, TokenHeader header,
          int64_t vocabulary, const SourceLoc& loc)
      : limit_(vocabulary > 0 ? vocabulary : kMaxIds), loc_(loc) {
    for (const std::string& path : paths) {
      InputFile file = open_input(path, "E300", "E300");
      const TokenLayout layout = token_layout(file, dtype, header);
      files_.push_back({WatchedFile(std::move(file), loc), layout, size_});
      size_ += layout.count;
    }
  }

  int64_t size() const override { return size_; }

  void read(int64_t begin, std::span<int32_t> to) const override {
    auto at =
        std::prev(std::upper_bound(files_.begin(), files_.end(), begin,
                                   [](int64_t id, const IdFile& file) { return id < file.first; }));
    for (; !to.empty(); ++at) {
      const int64_t end = std::next(at) == files_.end() ? size_ : std::next(at)->first;
      const auto count =
          static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(to.size()), end - begin));
      read_part(*at, begin - at->first, to.first(count));
      to = to.subspan(count);
      begin += static_cast<int64_t>(count);
    }
  }

 private:
  // Ids of one file, `offset` ids behind its begin.
  void read_part(const IdFile& from, int64_t offset, std::span<int32_t> to) const {
    const DType dtype = from.layout.dtype;
    const size_t id_bytes = dtype_size(dtype);
    const uint64_t begin = from.layout.begin + static_cast<uint64_t>(offset) * id_bytes;
    if (dtype == DType::kInt64) {
      std::vector<int64_t> ids(to.size());
      from.file.read_at(begin, reinterpret_cast<std::byte*>(ids.data()), ids.size() * id_bytes);
      for (size_t i = 0; i < to.size(); ++i) {
        check_id(ids[i], from, offset + static_cast<int64_t>(i));
        to[i] = static_cast<int32_t>(ids[i]);
      }
      return;
    }
    // The narrower ids are read into the end of the space that they will fill.
    auto* const bytes = reinterpret_cast<std::byte*>(to.data()) + to.size() * (4 - id_bytes);
    from.file.read_at(begin, bytes, to.size() * id_bytes);
    widen(dtype, bytes, to);
    for (size_t i = 0; i < to.size(); ++i) {
      const int64_t id =
          dtype == DType::kInt32 ? int64_t{to[i]} : int64_t{static_cast<uint32_t>(to[i])};
      check_id(id, from, offset + static_cast<int64_t>(i));
    }
  }

  void check_id(int64_t id, const IdFile& from, int64_t offset) const {
    if (id < 0 || id >= limit_) {
      throw ConfigError("E314", loc_,
                        fmt::format("`{}`: offset {}: id {}, but the vocabulary has {} ids",
                                    from.file.file().path(), format_thousands(offset), id,
                                    format_thousands(limit_)));
    }
  }

  int64_t limit_;  // every id is below it
  SourceLoc loc_;
  std::vector<IdFile> files_;
  int64_t size_ = 0;
};

}  // namespace

IdsPtr ids_in_memory(HostTensor tensor) {
  MESHTRAIN_CHECK(tensor.shape().size() == 1);
  return std::make_shared<MemoryIds>(std::move(tensor));
}

IdsPtr ids_in_files(const std::vector<std::string>& paths, DType dtype, TokenHeader header,
                    int64_t vocabulary, const SourceLoc& loc) {
  return std::make_shared<FileIds>(paths, dtype, header, vocabulary, loc);
}

}  // namespace meshtrain
