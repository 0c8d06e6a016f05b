// Zip archives through libzip: members with checked names and sizes, and archives of stored
// members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/read_error.h"

namespace meshtrain {

// The codes under which a kind of archive reports a missing file and a damaged one.
struct ZipCodes {
  const char* missing;
  const char* damaged;
};

// An open archive. Names of members are never used as paths.
class ZipReader {
 public:
  // Checks the directory: names that lead out of a folder, duplicates, encryption, sizes that the
  // bytes present cannot hold. Throws ConfigError with one of `codes`.
  ZipReader(const std::string& path, ZipCodes codes);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  const std::vector<std::string>& names() const { return names_; }  // in the archive's order
  bool has(std::string_view name) const;
  uint64_t size(std::string_view name) const;  // of the member, as declared
  uint32_t crc(std::string_view name) const;   // likewise
  // Returns the offset of the member's bytes in the file, when it is stored, not deflated.
  std::optional<uint64_t> stored_offset(std::string_view name) const;

  // Passes the member's bytes to `read`, then reads the rest and compares the checksum. Call
  // check_claim() first. Throws ConfigError `codes.damaged`, also for an unknown name.
  template <class F>
  auto read(std::string_view name, F&& read) const {
    check_claim(name);
    const std::unique_ptr<ByteReader> member = open(name);
    auto result = read(*member);
    member->finish();
    return result;
  }
  // The member's bytes, read incrementally while the archive is open.
  std::unique_ptr<ByteReader> open(std::string_view name) const;
  // Reads a highly compressed member once without storing it, so that no allocation trusts its
  // declared size.
  void check_claim(std::string_view name) const;
  // The whole member, at most `max_bytes`.
  std::string text(std::string_view name, uint64_t max_bytes) const;

 private:
  struct Archive;
  class OpenMember;
  size_t index_of(std::string_view name) const;

  std::string path_;
  ZipCodes codes_;
  std::vector<std::string> names_;
  std::unique_ptr<Archive> archive_;
};

// A member to write: the concatenation of borrowed chunks.
struct ZipMember {
  std::string name;
  std::vector<std::span<const std::byte>> chunks;
};

// Replaces `path` atomically. Members are stored, not deflated, and have no time, so that equal
// members give equal files. Throws FileError (exit 74).
void write_zip(const std::string& path, std::span<const ZipMember> members);

}  // namespace meshtrain
