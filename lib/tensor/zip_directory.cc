#include "tensor/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxMembers = 10000;

uint64_t little_endian(const std::byte* bytes, int width) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, static_cast<size_t>(width));
  return value;
}

}  // namespace

// libzip takes memory for as many members as the end record claims; this looks at the claim first.
ZipDirectory read_zip_directory(const InputFile& file, const char* damaged) {
  constexpr uint64_t kEndSize = 22;
  constexpr uint64_t kLocatorSize = 20;
  constexpr uint64_t kEnd64Size = 56;
  constexpr uint64_t kMemberSize = 46;  // at least, in the directory
  const std::string& path = file.path();
  const uint64_t size = file.size();
  if (size == 0) {
    read_error(damaged, path, "the file is empty");
  }
  std::vector<std::byte> tail(std::min<uint64_t>(size, kEndSize + 65535 + kLocatorSize));
  const uint64_t tail_begin = size - tail.size();
  file.read_at(tail_begin, tail.data(), tail.size());
  // The end record is followed by a comment that reaches to the end of the file.
  size_t end = tail.size();
  for (size_t i = tail.size() < kEndSize ? 0 : tail.size() - kEndSize + 1; i-- > 0;) {
    if (std::memcmp(&tail[i], "PK\x05\x06", 4) == 0 &&
        i + kEndSize + little_endian(&tail[i + 20], 2) == tail.size()) {
      end = i;
      break;
    }
  }
  if (end == tail.size()) {
    read_error(damaged, path, "not a zip archive, or one without its end ({} bytes): truncated?",
               format_thousands(static_cast<int64_t>(size)));
  }
  uint64_t members = little_endian(&tail[end + 10], 2);
  uint64_t directory_size = little_endian(&tail[end + 12], 4);
  uint64_t directory_begin = little_endian(&tail[end + 16], 4);
  if (end >= kLocatorSize && std::memcmp(&tail[end - kLocatorSize], "PK\x06\x07", 4) == 0) {
    const uint64_t at = little_endian(&tail[end - kLocatorSize + 8], 8);
    std::byte record[kEnd64Size];
    if (at > size || size - at < kEnd64Size) {
      read_error(damaged, path, "the zip64 end record lies outside of the file");
    }
    file.read_at(at, record, kEnd64Size);
    members = little_endian(record + 32, 8);
    directory_size = little_endian(record + 40, 8);
    directory_begin = little_endian(record + 48, 8);
  }
  const uint64_t end_begin = tail_begin + end;
  if (directory_begin > end_begin || directory_size > end_begin - directory_begin) {
    read_error(damaged, path, "the archive's directory lies outside of the file: truncated?");
  }
  if (members > kMaxMembers) {
    read_error(damaged, path, "the archive says it has {} members; at most {} are read", members,
               kMaxMembers);
  }
  if (members * kMemberSize > directory_size) {
    read_error(damaged, path, "the archive says it has {} members, its directory has room for {}",
               members, directory_size / kMemberSize);
  }
  return {directory_begin, directory_size};
}

namespace {

// The offset of a member's own header, from its entry of the directory. Sizes and offsets of 2^32
// and more stand in the zip64 field, in this order: size, stored size, offset.
uint64_t header_offset(const std::byte* entry, const std::byte* extra, size_t extra_bytes) {
  constexpr uint64_t kElsewhere = 0xffffffff;
  const uint64_t offset = little_endian(entry + 42, 4);
  if (offset != kElsewhere) {
    return offset;
  }
  while (extra_bytes >= 4) {
    const uint64_t id = little_endian(extra, 2);
    const size_t length = std::min<size_t>(little_endian(extra + 2, 2), extra_bytes - 4);
    if (id == 1) {
      const size_t before = (little_endian(entry + 24, 4) == kElsewhere ? 8 : 0) +
                            (little_endian(entry + 20, 4) == kElsewhere ? 8 : 0);
      return before + 8 <= length ? little_endian(extra + 4 + before, 8) : UINT64_MAX;
    }
    extra += 4 + length;
    extra_bytes -= 4 + length;
  }
  return UINT64_MAX;
}

}  // namespace

uint64_t member_offset(const InputFile& file, const ZipDirectory& directory, size_t index,
                       uint64_t num_bytes, const char* damaged) {
  constexpr uint64_t kEntrySize = 46;
  constexpr uint64_t kHeaderSize = 30;
  std::vector<std::byte> entries(directory.size);
  file.read_at(directory.begin, entries.data(), entries.size());
  size_t at = 0;
  const auto variable_bytes = [&] {  // name, extra fields, comment
    return little_endian(&entries[at + 28], 2) + little_endian(&entries[at + 30], 2) +
           little_endian(&entries[at + 32], 2);
  };
  const auto has_entry = [&] {
    return entries.size() - at >= kEntrySize && std::memcmp(&entries[at], "PK\x01\x02", 4) == 0 &&
           entries.size() - at - kEntrySize >= variable_bytes();
  };
  for (size_t i = 0; i < index && has_entry(); ++i) {
    at += kEntrySize + variable_bytes();
  }
  if (!has_entry()) {
    read_error(damaged, file.path(), "the archive's directory is damaged at entry {}", index);
  }
  const size_t name_bytes = little_endian(&entries[at + 28], 2);
  const uint64_t header = header_offset(&entries[at], entries.data() + at + kEntrySize + name_bytes,
                                        little_endian(&entries[at + 30], 2));
  std::byte own[kHeaderSize];
  if (header > file.size() || file.size() - header < kHeaderSize) {
    read_error(damaged, file.path(), "member {} lies outside of the file", index);
  }
  file.read_at(header, own, kHeaderSize);
  const uint64_t begin =
      header + kHeaderSize + little_endian(own + 26, 2) + little_endian(own + 28, 2);
  if (std::memcmp(own, "PK\x03\x04", 4) != 0 || begin > file.size() ||
      file.size() - begin < num_bytes) {
    read_error(damaged, file.path(), "member {} lies outside of the file", index);
  }
  return begin;
}

}  // namespace meshtrain
