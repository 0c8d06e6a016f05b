// Shared by the readers of tensor files: errors that name the file, and byte sources of known
// length, so that no allocation trusts a header alone.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/diagnostic.h"
#include "base/file.h"

namespace meshtrain {

// Throws ConfigError `code`: "`train.npy`: " + message. The place in a config is added by the
// caller that knows it.
template <class... Args>
[[noreturn]] void read_error(const char* code, const std::string& path,
                             fmt::format_string<Args...> format, Args&&... args) {
  throw ConfigError(
      code, {}, fmt::format("`{}`: {}", path, fmt::format(format, std::forward<Args>(args)...)));
}

// Opens a file that the user named. Throws ConfigError `missing_code` with similar names of that
// folder when it is not there, `refused_code` when it is a link (Links::kRefuse) or no regular
// file.
InputFile open_input(const std::string& path, const char* missing_code, const char* refused_code,
                     InputFile::Links links = InputFile::Links::kFollow);

// Bytes in order, of known total length.
class ByteReader {
 public:
  virtual ~ByteReader() = default;
  virtual uint64_t remaining() const = 0;
  // Reads exactly `num_bytes`, at most remaining().
  virtual void read(std::byte* to, size_t num_bytes) = 0;
  // Reads what is left and compares the checksum, where there is one.
  virtual void finish() {}
};

class MemoryReader final : public ByteReader {
 public:
  explicit MemoryReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  uint64_t remaining() const override { return rest_.size(); }
  void read(std::byte* to, size_t num_bytes) override;

 private:
  std::span<const std::byte> rest_;
};

class FileReader final : public ByteReader {
 public:
  explicit FileReader(const InputFile& file) : file_(&file) {}
  uint64_t remaining() const override { return file_->size() - offset_; }
  void read(std::byte* to, size_t num_bytes) override;

 private:
  const InputFile* file_;
  uint64_t offset_ = 0;
};

// The first bytes of a file for a message: "50 4b 03 04".
std::string hex_bytes(std::span<const std::byte> bytes);

}  // namespace meshtrain
