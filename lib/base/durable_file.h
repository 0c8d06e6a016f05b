// The file calls of checkpoints. Each function does one thing, which is durable on return, or
// throws FileError (exit 74). Nothing is retried after a failed fsync, because the kernel may have
// dropped the pages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "base/system_calls.h"  // sync_folder

namespace meshtrain {

// A file that is written sequentially, with a checksum.
class OutputFile {
 public:
  OutputFile() = default;
  virtual ~OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  virtual void finish() = 0;
  uint64_t size() const { return size_; }
  std::string checksum() const { return sum_.hex(); }

 private:
  virtual void put(std::span<const std::byte> bytes) = 0;

  uint64_t size_ = 0;
  Checksum128 sum_;
};

// A file that did not exist before.
class NewFile : public OutputFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile() override;

  void finish() override;  // fsync and close

 private:
  void put(std::span<const std::byte> bytes) override;

  std::string path_;
  int fd_ = -1;
  uint64_t sent_ = 0;  // to the system
};

void make_new_folder(const std::string& path, unsigned mode = 0777);
// Renames, never over something that exists: then FileError with EEXIST.
void rename_to_new(const std::string& from, const std::string& to);
// Gives each of two folders the other's name, in one step where the file system can.
void exchange_names(const std::string& from, const std::string& to);
// Makes a folder and those above it that do not exist; the names of new ones are on the disk then.
void make_folders(const std::string& path);
// Puts a link to `target` at `path`, in place of one that was there; FileError with EEXIST where
// something else is.
void replace_link(const std::string& target, const std::string& path);
// Removes a folder and all in it; what could not be removed, in words, or nothing.
std::optional<std::string> remove_folder(const std::string& path);
// Whether `path` itself, not what a link points to, is a folder.
bool is_real_folder(const std::string& path);
// Names in a folder, sorted; none when it cannot be read: then *error_number says why.
std::vector<std::string> folder_names(const std::string& path, int* error_number = nullptr);
// Bytes that can still be written below `path`; nothing when the system does not say.
std::optional<int64_t> free_bytes(const std::string& path);

}  // namespace meshtrain
