#include "tensor/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/text.h"
#include "tensor/npy_header.h"

namespace meshtrain {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kMaxDims = 32;         // as parse_npy_header has it
constexpr size_t kPrelude = 8;          // magic and version
constexpr uint32_t kMaxDict = 1 << 16;  // a dict of three keys and 32 sizes has under 1 KiB

struct Descr {
  DType dtype;
  std::string_view code;
};
constexpr Descr kDescrs[] = {
    {DType::kBool, "b1"},    {DType::kUInt8, "u1"},   {DType::kInt8, "i1"},
    {DType::kUInt16, "u2"},  {DType::kInt16, "i2"},   {DType::kUInt32, "u4"},
    {DType::kInt32, "i4"},   {DType::kUInt64, "u8"},  {DType::kInt64, "i8"},
    {DType::kFloat16, "f2"}, {DType::kFloat32, "f4"}, {DType::kFloat64, "f8"}};

// The element type of a `descr` such as "<f4"; throws E303 with the reason.
DType element_type(const NpyHeader& header, const std::string& name) {
  const std::string& descr = header.descr;
  const std::string_view code = descr.size() > 1 ? std::string_view(descr).substr(1) : "";
  const char* why = "is not a type of numbers";
  if (code.starts_with('O')) {
    why = "holds Python objects, which are never loaded";
  } else if (code.starts_with('U') || code.starts_with('S') || code.starts_with('a')) {
    why = "holds text";
  } else if (code.starts_with('c')) {
    why = "holds complex numbers";
  } else if (code.starts_with('M') || code.starts_with('m')) {
    why = "holds dates or times";
  } else if (code.starts_with('V')) {
    why = "holds raw bytes";
  } else if (!descr.empty() && std::string_view("<>=|").find(descr[0]) != std::string_view::npos) {
    for (const Descr& type : kDescrs) {
      if (type.code == code) {
        return type.dtype;
      }
    }
  }
  read_error("E303", name,
             "element type `{}` {}; types that can be read: bool, int8 to int64, uint8 to uint64, "
             "float16 to float64",
             printable(descr), why);
}

// Number of bytes of the data; throws E304 where that overflows.
uint64_t data_bytes(const Shape& shape, DType dtype, const std::string& name) {
  // A size of zero does not excuse the others: NumPy itself cannot hold such a shape.
  uint64_t product = dtype_size(dtype);
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    if (size != 0 && (__builtin_mul_overflow(product, static_cast<uint64_t>(size), &product) ||
                      product > uint64_t{1} << 62)) {
      read_error("E304", name, "shape {} has more elements than any memory", shape_string(shape));
    }
  }
  return empty ? 0 : product;
}

void swap_bytes(std::byte* data, size_t count, size_t width) {
  for (size_t i = 0; i < count; ++i) {
    std::reverse(data + i * width, data + (i + 1) * width);
  }
}

// From column-major to row-major: walks the output in order and keeps the input offset of each
// index; W is the element's unsigned type.
template <class W>
void to_row_major(const Shape& shape, const std::byte* from, std::byte* to, int64_t count) {
  const size_t rank = shape.size();
  std::array<int64_t, kMaxDims> stride, index = {};
  stride[0] = 1;
  for (size_t d = 1; d < rank; ++d) {
    stride[d] = stride[d - 1] * shape[d - 1];
  }
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * sizeof(W), from + offset * sizeof(W), sizeof(W));
    for (size_t d = rank; d-- > 0;) {
      offset += stride[d];
      if (++index[d] < shape[d]) {
        break;
      }
      offset -= stride[d] * shape[d];
      index[d] = 0;
    }
  }
}

HostTensor from_fortran(const HostTensor& columns) {
  HostTensor rows(columns.dtype(), columns.shape());
  const auto convert = [&](auto tag) {
    to_row_major<decltype(tag)>(columns.shape(), columns.bytes(), rows.bytes(), columns.size());
  };
  switch (dtype_size(columns.dtype())) {
    case 1:
      convert(uint8_t{});
      break;
    case 2:
      convert(uint16_t{});
      break;
    case 4:
      convert(uint32_t{});
      break;
    default:
      convert(uint64_t{});
  }
  return rows;
}

// Magic, version and header text; leaves `bytes` at the data.
std::string read_header_text(ByteReader& bytes, const std::string& name) {
  const uint64_t total = bytes.remaining();
  std::byte prelude[kPrelude];
  const size_t present = std::min<uint64_t>(total, kPrelude);
  bytes.read(prelude, present);
  const size_t magic = std::min<size_t>(present, 6);
  if (present == 0) {
    read_error("E301", name, "the file is empty");
  }
  if (std::memcmp(prelude, "\x93NUMPY", magic) != 0) {
    read_error("E301", name, "not a NumPy file (it begins with {})", hex_bytes({prelude, magic}));
  }
  if (present < kPrelude) {
    read_error("E302", name, "the file has only {} bytes: truncated?", total);
  }
  const int major = static_cast<int>(prelude[6]);
  const int minor = static_cast<int>(prelude[7]);
  if (major < 1 || major > 3 || minor != 0) {
    read_error("E301", name, "format version {}.{}; versions 1.0 to 3.0 can be read", major, minor);
  }
  const size_t width = major == 1 ? 2 : 4;
  if (bytes.remaining() < width) {
    read_error("E302", name, "the file has only {} bytes: truncated?", total);
  }
  std::byte length_bytes[4] = {};
  bytes.read(length_bytes, width);
  uint32_t length = 0;
  std::memcpy(&length, length_bytes, sizeof(length));
  if (length > bytes.remaining()) {
    read_error("E302", name,
               "the header says it has {} bytes, the file has {} after it: truncated?", length,
               bytes.remaining());
  }
  if (length > kMaxDict) {
    read_error("E302", name, "a header of {} bytes; at most {} are read", length, kMaxDict);
  }
  std::string text(length, '\0');
  bytes.read(reinterpret_cast<std::byte*>(text.data()), length);
  return text;
}

}  // namespace

NpyLayout read_npy_layout(ByteReader& bytes, const std::string& name) {
  const NpyHeader header = parse_npy_header(read_header_text(bytes, name), name);
  const DType dtype = element_type(header, name);
  const uint64_t expected = data_bytes(header.shape, dtype, name);
  const uint64_t found = bytes.remaining();
  if (found != expected) {
    read_error("E305", name, "{} {} needs {} bytes of data, the file has {}: {}", dtype_name(dtype),
               shape_string(header.shape), format_thousands(static_cast<int64_t>(expected)),
               format_thousands(static_cast<int64_t>(found)),
               found < expected ? "truncated?" : "more than one array in it?");
  }
  return {dtype, header.shape, header.descr[0] == '>' && dtype_size(dtype) > 1,
          header.fortran_order && header.shape.size() > 1, expected};
}

void NpyLayout::convert(std::byte* data, size_t count) const {
  const size_t width = dtype_size(dtype);
  if (big_endian) {
    swap_bytes(data, count / width, width);
  }
  if (dtype == DType::kBool) {  // NumPy writes 0 and 1; nothing else may get into a computation
    std::transform(data, data + count, data,
                   [](std::byte b) { return std::byte{b != std::byte{0}}; });
  }
}

HostTensor read_npy(ByteReader& bytes, const std::string& name) {
  const NpyLayout layout = read_npy_layout(bytes, name);
  HostTensor tensor(layout.dtype, layout.shape);
  if (layout.num_bytes == 0) {
    return tensor;
  }
  bytes.read(tensor.bytes(), tensor.num_bytes());
  layout.convert(tensor.bytes(), tensor.num_bytes());
  return layout.fortran_order ? from_fortran(tensor) : std::move(tensor);
}

HostTensor read_npy(const std::string& path) {
  const InputFile file = open_input(path, "E300", "E300");
  FileReader bytes(file);
  return read_npy(bytes, path);
}

std::string npy_header(DType dtype, const Shape& shape) {
  if (dtype == DType::kBFloat16) {
    dtype = DType::kFloat32;
  }
  const auto type = std::find_if(std::begin(kDescrs), std::end(kDescrs),
                                 [&](const Descr& code) { return code.dtype == dtype; });
  std::string text =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': {}, }}",
                  dtype_size(dtype) == 1 ? '|' : '<', type->code, shape_string(shape));
  // 10 bytes before the text, a line end after it, the data at a multiple of 64.
  const size_t unpadded = 10 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  const size_t length = text.size();
  std::string header("\x93NUMPY\x01\x00", kPrelude);
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  return header + text;
}

void write_npy(const std::string& path, const HostTensor& tensor) {
  if (tensor.dtype() == DType::kBFloat16) {
    return write_npy(path, tensor.cast(DType::kFloat32));
  }
  const std::string header = npy_header(tensor.dtype(), tensor.shape());
  const std::span<const std::byte> chunks[] = {std::as_bytes(std::span(header)),
                                               {tensor.bytes(), tensor.num_bytes()}};
  write_file_atomic(path, std::span<const std::span<const std::byte>>(chunks));
}

}  // namespace meshtrain
