// Whole files: read with limits, written so that a crash or a full disk never leaves half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace meshtrain {

// A call on a file failed: "cannot open `x.npy`: No such file or directory". Exit code 74 when
// writing, 3 when reading.
class FileError : public RuntimeFailure {
 public:
  FileError(ExitCode code, const std::string& action, std::string path, int error_number);
  FileError(ExitCode code, const std::string& message, std::string path);

  const std::string& path() const { return path_; }
  int error_number() const { return error_number_; }  // errno; 0 for "too long", "not a file", ...

 private:
  std::string path_;
  int error_number_ = 0;
};

// A regular file open for reading at positions (pread, never mmap: a mapped file that shrinks kills
// the process with SIGBUS). Moves, closes itself.
class InputFile {
 public:
  enum class Links { kFollow, kRefuse };  // what to do when the path itself is a symbolic link

  // Throws FileError when it cannot be opened, is a link (kRefuse) or no regular file.
  explicit InputFile(std::string path, Links links = Links::kFollow);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  int descriptor() const { return fd_; }
  // Reads exactly `num_bytes` from `offset`; throws FileError when the file ends before.
  void read_at(uint64_t offset, std::byte* to, size_t num_bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// The text of a file of any kind but a folder (a pipe, too). Throws FileError when it cannot be
// read or has more than `max_bytes`.
std::string read_file(const std::string& path, uint64_t max_bytes);
// The same without a byte order mark in front.
std::string read_utf8(const std::string& path, uint64_t max_bytes);

// Replaces `path` by the concatenated chunks: written under a temporary name in the same folder,
// fsynced, renamed, the folder fsynced. On failure throws FileError (exit 74), the old file is as
// it was and nothing is left behind. A device or pipe ("/dev/stdout") is written directly.
void write_file_atomic(const std::string& path, std::span<const std::span<const std::byte>> chunks);
void write_file_atomic(const std::string& path, std::span<const std::byte> data);
void write_file_atomic(const std::string& path, std::string_view text);

// For libraries that write files themselves: a name in the folder of `path` not yet in use ...
std::string temporary_name(const std::string& path);
// ... and its end: fsync `temporary`, rename it to `path`, fsync the folder. Removes `temporary`
// and throws FileError on failure.
void commit_temporary(const std::string& temporary, const std::string& path);

// Names in the folder of `path` that resemble it, nearest first; empty when there is no such
// folder.
std::vector<std::string> similar_files(const std::string& path, size_t count);

}  // namespace meshtrain
