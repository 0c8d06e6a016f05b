#include "base/durable_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/system_calls.h"

namespace meshtrain {
namespace {

constexpr size_t kPart = size_t{8} << 20;  // of one write(): ends soon after a signal

[[noreturn]] void failed(const char* action, const std::string& path, int error_number) {
  throw FileError(ExitCode::kWriteFailed, action, path, error_number);
}

}  // namespace

NewFile::NewFile(std::string path)
    : path_(std::move(path)), fd_(retrying([&] {
        return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
      })) {
  if (fd_ < 0) {
    failed("cannot create", path_, errno);
  }
}

NewFile::~NewFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  sum_.update(bytes);
  size_ += bytes.size();
  put(bytes);
}

void NewFile::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        retrying([&] { return ::write(fd_, bytes.data(), std::min(bytes.size(), kPart)); });
    if (n <= 0) {
      failed("cannot write", path_, n < 0 ? errno : ENOSPC);
    }
    // The disk begins at once instead of at the fsync; only a hint.
    ::sync_file_range(fd_, static_cast<off_t>(sent_), n, SYNC_FILE_RANGE_WRITE);
    sent_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void NewFile::finish() {
  if (retrying([&] { return ::fsync(fd_); }) != 0) {
    failed("cannot sync", path_, errno);
  }
  // Linux closes the descriptor even when it reports EINTR.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    failed("cannot close", path_, errno);
  }
}

void make_new_folder(const std::string& path, unsigned mode) {
  if (retrying([&] { return ::mkdir(path.c_str(), mode); }) != 0) {
    failed("cannot create", path, errno);
  }
}

void rename_to_new(const std::string& from, const std::string& to) {
  if (retrying([&] {
        return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
      }) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {  // the file system knows the flag
    failed("cannot rename to", to, errno);
  }
  struct stat status;
  if (::lstat(to.c_str(), &status) == 0) {
    failed("cannot rename to", to, EEXIST);
  }
  if (retrying([&] { return ::rename(from.c_str(), to.c_str()); }) != 0) {
    failed("cannot rename to", to, errno);
  }
}

void exchange_names(const std::string& from, const std::string& to) {
  if (retrying([&] {
        return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE);
      }) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    failed("cannot rename to", to, errno);
  }
  const std::string temporary = temporary_name(to);
  rename_to_new(to, temporary);
  rename_to_new(from, to);
  rename_to_new(temporary, from);
}

void make_folders(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) {
    return;
  }
  const std::string parent = fs::path(path).parent_path().string();
  make_folders(parent);
  if (retrying([&] { return ::mkdir(path.c_str(), 0777); }) != 0 && errno != EEXIST) {
    failed("cannot create", path, errno);
  }
  if (!fs::is_directory(path, error)) {
    failed("cannot create", path, ENOTDIR);
  }
  sync_folder(parent.empty() ? "." : parent);
}

void replace_link(const std::string& target, const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0 && !S_ISLNK(status.st_mode)) {
    failed("cannot put a link at", path, EEXIST);
  }
  const std::string temporary = temporary_name(path);
  if (retrying([&] { return ::symlink(target.c_str(), temporary.c_str()); }) != 0) {
    failed("cannot create", temporary, errno);
  }
  if (retrying([&] { return ::rename(temporary.c_str(), path.c_str()); }) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    failed("cannot rename to", path, error_number);
  }
}

std::optional<std::string> remove_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error) {
    return std::nullopt;
  }
  return fmt::format("cannot remove `{}`: {}", path, error.message());
}

bool is_real_folder(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> folder_names(const std::string& path, int* error_number) {
  std::vector<std::string> names;
  errno = 0;
  if (DIR* dir = ::opendir(path.c_str())) {
    while (const dirent* entry = (errno = 0, ::readdir(dir))) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
    }
    const int problem = errno;
    ::closedir(dir);
    errno = problem;
  }
  if (error_number != nullptr) {
    *error_number = errno;
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int64_t> free_bytes(const std::string& path) {
  struct statvfs status;
  if (::statvfs(path.c_str(), &status) != 0 || status.f_blocks == 0) {
    return std::nullopt;
  }
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

}  // namespace meshtrain
