#include "repair.h"

#include <zlib.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace meshtrain::fuzz {
namespace {

constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n";
constexpr size_t kMostInflated = size_t{1} << 20;

bool starts_with(std::span<const uint8_t> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// Of `count` bytes, least significant first.
uint64_t little(std::span<const uint8_t> bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) {
    value = value << 8 | bytes[at + i];
  }
  return value;
}

uint32_t big4(std::span<const uint8_t> bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 |
         bytes[at + 3];
}

uint32_t crc_of(std::span<const uint8_t> bytes) {
  return static_cast<uint32_t>(
      ::crc32(::crc32(0, nullptr, 0), bytes.data(), static_cast<uInt>(bytes.size())));
}

// Chunks: length, type, data, checksum of type and data; numbers with the high byte first.
void repair_png(std::span<uint8_t> bytes) {
  for (size_t at = kPng.size(); at + 12 <= bytes.size();) {
    const size_t length = big4(bytes, at);
    if (length > bytes.size() - at - 12) {
      return;
    }
    const uint32_t crc = crc_of(bytes.subspan(at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) {
      bytes[at + 8 + length + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
    }
    at += 12 + length;
  }
}

// What a deflated stream without header holds, as far as it can be read.
std::vector<uint8_t> inflated(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> result(kMostInflated);
  z_stream stream = {};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return {};
  }
  stream.next_in = const_cast<uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = result.data();
  stream.avail_out = static_cast<uInt>(result.size());
  ::inflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  ::inflateEnd(&stream);
  return result;
}

// The entry of a zip archive's directory at `at` and the header before its data get the checksum
// and the size that the data has (APPNOTE.TXT 4.3.7, 4.3.12).
void repair_entry(std::span<uint8_t> bytes, size_t at) {
  const uint64_t header = little(bytes, at + 42, 4);
  if (header + 30 > bytes.size()) {
    return;
  }
  const uint64_t data = header + 30 + little(bytes, header + 26, 2) + little(bytes, header + 28, 2);
  const uint64_t packed_size = little(bytes, at + 20, 4);
  if (data > bytes.size() || packed_size > bytes.size() - data) {
    return;
  }
  const std::span<const uint8_t> packed = bytes.subspan(data, packed_size);
  const bool is_deflated = little(bytes, at + 10, 2) == 8;
  const std::vector<uint8_t> unpacked =
      is_deflated ? inflated(packed) : std::vector<uint8_t>(packed.begin(), packed.end());
  const auto size = static_cast<uint32_t>(unpacked.size());
  const uint32_t crc = crc_of(unpacked);
  const auto put = [&](size_t place, uint32_t value) {
    for (size_t i = 0; i < 4; ++i) {
      bytes[place + i] = static_cast<uint8_t>(value >> (8 * i));
    }
  };
  put(at + 16, crc);
  put(at + 24, size);
  put(header + 14, crc);
  put(header + 22, size);
}

void repair_zip(std::span<uint8_t> bytes) {
  constexpr std::string_view kEntry = "PK\x01\x02";
  for (size_t at = 0; at + 46 <= bytes.size(); ++at) {
    if (starts_with(bytes.subspan(at), kEntry)) {
      repair_entry(bytes, at);
    }
  }
}

}  // namespace

void repair_checksums(std::span<uint8_t> bytes) {
  if (starts_with(bytes, kPng)) {
    repair_png(bytes);
  } else if (starts_with(bytes, "PK\x03\x04")) {
    repair_zip(bytes);
  }
}

}  // namespace meshtrain::fuzz
