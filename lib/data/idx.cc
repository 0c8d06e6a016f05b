#include "data/idx.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/text.h"
#include "data/file_rows.h"
#include "data/gunzip.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxRank = 8;
// Deflate cannot shrink below 1/1032: a larger claim is false.
constexpr uint64_t kMaxRatio = 1032;
// A file both larger and denser than these is refused even if it is true.
constexpr uint64_t kBombBytes = uint64_t{1} << 30;
constexpr uint64_t kBombRatio = 100;
// Above these a compressed file is read once without storing before memory is taken for it. Images
// of digits have a ratio of about 5: they are read only once.
constexpr uint64_t kTrustedBytes = uint64_t{1} << 24;
constexpr uint64_t kTrustedRatio = 8;

std::optional<DType> idx_type(int code) {
  switch (code) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0B:
      return DType::kInt16;
    case 0x0C:
      return DType::kInt32;
    case 0x0D:
      return DType::kFloat32;
    case 0x0E:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

uint32_t big_endian(const std::byte* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<uint32_t>(bytes[i]);
  }
  return value;
}

struct IdxHeader {
  DType dtype;
  Shape shape;
  uint64_t data_bytes = 0;
  uint64_t header_bytes = 0;
};

IdxHeader read_header(GunzipBytes& bytes, const std::string& path) {
  std::byte magic[4] = {};
  const size_t present = bytes.read(magic, sizeof(magic));
  if (present == 0) {
    read_error("E307", path, "the file is empty");
  }
  const auto dtype = idx_type(static_cast<int>(magic[2]));
  const auto rank = static_cast<size_t>(magic[3]);
  if (present < 4 || magic[0] != std::byte{0} || magic[1] != std::byte{0} || !dtype || rank == 0 ||
      rank > kMaxRank) {
    read_error("E307", path,
               "not an IDX file (it begins with {}; MNIST's images begin with 00 00 08 03, its "
               "labels with 00 00 08 01)",
               hex_bytes({magic, present}));
  }
  IdxHeader header{*dtype, {}, dtype_size(*dtype), 4 * (1 + rank)};
  bool empty = false;
  for (size_t d = 0; d < rank; ++d) {
    std::byte size_bytes[4];
    if (bytes.read(size_bytes, 4) != 4) {
      read_error("E307", path, "the file ends within its {} sizes: truncated?", rank);
    }
    const uint32_t size = big_endian(size_bytes);
    header.shape.push_back(size);
    empty = empty || size == 0;
    if (size != 0 &&
        (__builtin_mul_overflow(header.data_bytes, uint64_t{size}, &header.data_bytes) ||
         header.data_bytes > uint64_t{1} << 62)) {
      read_error("E307", path, "the sizes {} have more elements than any memory",
                 shape_string(header.shape));
    }
  }
  if (empty && header.shape[0] != 0) {  // 16 bytes could claim four thousand million of them
    read_error("E307", path, "the samples of {} have no elements", shape_string(header.shape));
  }
  header.data_bytes = empty ? 0 : header.data_bytes;
  return header;
}

[[noreturn]] void wrong_length(const IdxHeader& header, const std::string& path, uint64_t found) {
  const bool is_short = found < header.data_bytes;
  read_error("E307", path, "{} {} needs {} bytes of data, the file has {}{}: {}",
             dtype_name(header.dtype), shape_string(header.shape),
             format_thousands(static_cast<int64_t>(header.data_bytes)), is_short ? "" : "at least ",
             format_thousands(static_cast<int64_t>(found)),
             is_short ? "truncated?" : "something follows the array");
}

// Compares the header with the bytes present, before allocating memory.
void check_claim(const IdxHeader& header, const InputFile& file, bool is_gzip) {
  if (!is_gzip) {
    const uint64_t found = file.size() - header.header_bytes;
    if (found != header.data_bytes) {
      wrong_length(header, file.path(), found);
    }
    return;
  }
  const uint64_t claimed = header.data_bytes;
  const bool lies = claimed / kMaxRatio > file.size();
  if (lies || (claimed > kBombBytes && claimed / kBombRatio > file.size())) {
    read_error("E307", file.path(), "the header declares {} for {} of compressed data{}",
               format_bytes(static_cast<int64_t>(claimed)),
               format_bytes(static_cast<int64_t>(file.size())), lies ? ", which cannot be" : "");
  }
  if (claimed > kTrustedBytes && claimed / kTrustedRatio > file.size()) {
    GunzipBytes bytes(file, "E307");
    std::vector<std::byte> buffer(size_t{1} << 16);
    uint64_t found = 0;
    size_t count;
    while ((count = bytes.read(buffer.data(), buffer.size())) > 0 &&
           found <= claimed + header.header_bytes) {
      found += count;
    }
    if (found != claimed + header.header_bytes) {
      wrong_length(header, file.path(), found - header.header_bytes);
    }
  }
}

}  // namespace

namespace {

// A compressed file's elements; what follows them is an error at the end.
class IdxStream final : public ByteReader {
 public:
  explicit IdxStream(const std::string& path)
      : file_(open_input(path, "E300", "E300")),
        bytes_(file_, "E307"),
        header_(read_header(bytes_, path)),
        remaining_(header_.data_bytes) {}

  uint64_t remaining() const override { return remaining_; }

  void read(std::byte* to, size_t num_bytes) override {
    const size_t count = bytes_.read(to, num_bytes);
    remaining_ -= count;
    if (count < num_bytes) {
      wrong_length(header_, file_.path(), header_.data_bytes - remaining_);
    }
  }

  void finish() override {
    std::byte extra;
    if (bytes_.read(&extra, 1) != 0) {
      wrong_length(header_, file_.path(), header_.data_bytes + 1);
    }
  }

 private:
  InputFile file_;
  GunzipBytes bytes_;
  IdxHeader header_;
  uint64_t remaining_;
};

}  // namespace

RowsPtr idx_rows(const std::string& path, const SourceLoc& loc) {
  auto file = std::make_shared<const WatchedFile>(open_input(path, "E300", "E300"), loc);
  GunzipBytes bytes(file->file(), "E307");
  const IdxHeader header = read_header(bytes, path);
  check_claim(header, file->file(), bytes.is_gzip());
  StoredArray array{header.dtype, header.shape, {}};
  if (const size_t width = dtype_size(header.dtype); width > 1) {
    array.convert = [width](std::byte* data, size_t num_bytes) {
      for (size_t i = 0; i < num_bytes; i += width) {
        std::reverse(data + i, data + i + width);
      }
    };
  }
  if (bytes.is_gzip()) {
    return stream_rows(std::move(array), [path] { return std::make_unique<IdxStream>(path); });
  }
  return stored_rows(std::move(file), std::move(array), header.header_bytes);
}

HostTensor read_idx(const std::string& path) {
  const RowsPtr rows = idx_rows(path, {});
  return rows->read_range(0, rows->size());
}

}  // namespace meshtrain
