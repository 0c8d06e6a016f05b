#include "data/token_file.h"

#include <array>
#include <cstring>

#include "base/text.h"
#include "tensor/npy.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

struct HeaderKind {
  int32_t magic, version;
  DType dtype;
};
constexpr HeaderKind kKinds[] = {{20240520, 1, DType::kUInt16}, {20240801, 7, DType::kUInt32}};

using HeaderWords = std::array<int32_t, 3>;  // magic, version, count

const HeaderKind* kind_of(int32_t magic) {
  for (const HeaderKind& kind : kKinds) {
    if (kind.magic == magic) {
      return &kind;
    }
  }
  return nullptr;
}

std::string thousands(uint64_t number) {
  return format_thousands(static_cast<int64_t>(number));
}

TokenLayout with_header(const InputFile& file, const HeaderKind& kind, const HeaderWords& words) {
  if (words[1] != kind.version) {
    read_error("E327", file.path(), "llm.c's header {} has version {}; version {} is read",
               kind.magic, words[1], kind.version);
  }
  if (words[2] < 0) {
    read_error("E305", file.path(), "the header declares {} ids", words[2]);
  }
  const uint64_t ids_bytes = file.size() - kTokenHeaderBytes;
  const uint64_t declared = static_cast<uint32_t>(words[2]) * uint64_t{dtype_size(kind.dtype)};
  if (ids_bytes != declared) {
    read_error("E305", file.path(), "the header declares {} {} ids, {} bytes; {} follow it",
               words[2], dtype_name(kind.dtype), thousands(declared), thousands(ids_bytes));
  }
  return {kind.dtype, kTokenHeaderBytes, words[2]};
}

constexpr std::string_view kNpyMagic = "\x93NUMPY";

bool is_npy(const InputFile& file) {
  std::string begin(kNpyMagic.size(), '\0');
  if (file.size() < begin.size()) {
    return false;
  }
  file.read_at(0, reinterpret_cast<std::byte*>(begin.data()), begin.size());
  return begin == kNpyMagic;
}

// The ids of a .npy file: its type takes the place of the source's `dtype`.
TokenLayout npy_token_layout(const InputFile& file) {
  FileReader bytes(file);
  const NpyLayout npy = read_npy_layout(bytes, file.path());
  switch (npy.dtype) {
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kInt32:
    case DType::kInt64:
      break;
    default:
      read_error("E303", file.path(),
                 "a .npy file of {}; ids are uint8, uint16, uint32, int32 or int64: save "
                 "ids.astype('uint16')",
                 dtype_name(npy.dtype));
  }
  if (npy.big_endian) {
    read_error("E303", file.path(),
               "a .npy file of big-endian ids; little-endian ids are read: save "
               "ids.astype('<u2') or ids.astype('<u4')");
  }
  if (npy.shape.size() != 1) {
    read_error("E304", file.path(),
               "a .npy file of shape {}; ids have one dimension: save ids.ravel()",
               shape_string(npy.shape));
  }
  return {npy.dtype, file.size() - npy.num_bytes, npy.shape[0]};
}

}  // namespace

TokenLayout token_layout(const InputFile& file, DType dtype, TokenHeader header) {
  if (header == TokenHeader::kAuto && is_npy(file)) {
    return npy_token_layout(file);
  }
  HeaderWords words{};
  if (header == TokenHeader::kAuto && file.size() >= sizeof(words)) {
    file.read_at(0, reinterpret_cast<std::byte*>(words.data()), sizeof(words));
    if (const HeaderKind* kind = kind_of(words[0])) {
      if (file.size() < kTokenHeaderBytes) {
        read_error("E305", file.path(), "llm.c's header has {} bytes; the file has {}; truncated?",
                   thousands(kTokenHeaderBytes), thousands(file.size()));
      }
      return with_header(file, *kind, words);
    }
    if (kind_of(static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(words[0]))))) {
      read_error("E327", file.path(), "llm.c's header is big-endian; little-endian ids are read");
    }
  }
  const size_t id_bytes = dtype_size(dtype);
  if (file.size() % id_bytes != 0) {
    read_error("E305", file.path(), "{} bytes are no whole number of {} ids; truncated?",
               thousands(file.size()), dtype_name(dtype));
  }
  return {dtype, 0, static_cast<int64_t>(file.size() / id_bytes)};
}

std::string token_header(DType dtype, int64_t count) {
  for (const HeaderKind& kind : kKinds) {
    if (kind.dtype == dtype) {
      const HeaderWords words = {kind.magic, kind.version, static_cast<int32_t>(count)};
      std::string out(kTokenHeaderBytes, '\0');
      std::memcpy(out.data(), words.data(), sizeof(words));
      return out;
    }
  }
  MESHTRAIN_CHECK(false, "no header for {}", dtype_name(dtype));
}

}  // namespace meshtrain
