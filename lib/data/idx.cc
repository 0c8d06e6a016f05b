#include "data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/text.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxRank = 8;
// Deflate cannot shrink below 1/1032: what claims more lies.
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

// The bytes of a file in order, decompressed where it is gzip.
class IdxBytes {
 public:
  explicit IdxBytes(const InputFile& file) : file_(file) {
    std::byte magic[2] = {};
    file.read_at(0, magic, std::min<uint64_t>(file.size(), 2));
    is_gzip_ = magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b};
    if (is_gzip_) {
      input_.resize(size_t{1} << 16);
      MESHTRAIN_CHECK(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK);  // 16: a gzip wrapper
    }
  }
  ~IdxBytes() {
    if (is_gzip_) {
      inflateEnd(&stream_);
    }
  }
  IdxBytes(const IdxBytes&) = delete;
  IdxBytes& operator=(const IdxBytes&) = delete;

  bool is_gzip() const { return is_gzip_; }

  // Reads up to `num_bytes`; fewer only at the end.
  size_t read(std::byte* to, size_t num_bytes) {
    if (!is_gzip_) {
      const size_t count = std::min<uint64_t>(num_bytes, file_.size() - offset_);
      file_.read_at(offset_, to, count);
      offset_ += count;
      return count;
    }
    size_t done = 0;
    while (done < num_bytes && inflate_some(to + done, num_bytes - done, &done)) {
    }
    return done;
  }

 private:
  // One call of inflate; false at the end of the last gzip member.
  bool inflate_some(std::byte* to, size_t room, size_t* done) {
    if (stream_.avail_in == 0) {
      const size_t count = std::min<uint64_t>(input_.size(), file_.size() - offset_);
      file_.read_at(offset_, input_.data(), count);
      offset_ += count;
      stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
      stream_.avail_in = static_cast<uInt>(count);
    }
    if (ended_) {  // a further member may follow
      if (stream_.avail_in == 0) {
        return false;
      }
      inflateReset(&stream_);
      ended_ = false;
    }
    const size_t step = std::min<size_t>(room, size_t{1} << 30);  // counts are 32 bits wide
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(step);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    *done += step - stream_.avail_out;
    ended_ = code == Z_STREAM_END;
    if (code == Z_BUF_ERROR && offset_ == file_.size()) {
      read_error("E307", file_.path(),
                 "the compressed data end early ({} bytes in all): truncated?",
                 format_thousands(static_cast<int64_t>(file_.size())));
    }
    if (code != Z_OK && code != Z_STREAM_END) {
      read_error("E307", file_.path(), "the compressed data are damaged: {}",
                 stream_.msg != nullptr ? stream_.msg : "unknown coding");
    }
    return true;
  }

  const InputFile& file_;
  bool is_gzip_ = false;
  bool ended_ = false;
  uint64_t offset_ = 0;  // in the file
  std::vector<std::byte> input_;
  z_stream stream_ = {};
};

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

IdxHeader read_header(IdxBytes& bytes, const std::string& path) {
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

// What the header claims against the bytes present, before memory is taken.
void check_claim(const IdxHeader& header, const InputFile& file, bool is_gzip) {
  if (!is_gzip) {
    const uint64_t found = file.size() - header.header_bytes;
    if (found < header.data_bytes) {
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
    IdxBytes bytes(file);
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

HostTensor read_idx(const std::string& path) {
  const InputFile file = open_input(path, "E300", "E300");
  IdxBytes bytes(file);
  const IdxHeader header = read_header(bytes, path);
  check_claim(header, file, bytes.is_gzip());
  HostTensor tensor(header.dtype, header.shape);
  const size_t found = bytes.read(tensor.bytes(), tensor.num_bytes());
  if (found < tensor.num_bytes()) {
    wrong_length(header, path, found);
  }
  std::byte extra;
  if (bytes.read(&extra, 1) != 0) {
    wrong_length(header, path, found + 1);
  }
  const size_t width = dtype_size(header.dtype);
  for (size_t i = 0; width > 1 && i < tensor.num_bytes(); i += width) {
    std::reverse(tensor.bytes() + i, tensor.bytes() + i + width);
  }
  return tensor;
}

}  // namespace meshtrain
