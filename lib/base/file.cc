#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/system_calls.h"
#include "base/text.h"
#include "base/utf8.h"

namespace meshtrain {
namespace {

// The folder of `path`, "." for a bare name, and the name in it.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return {".", path};
  }
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// A descriptor that is closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // Linux closes the descriptor even when it reports EINTR.
  bool close() { return fd_ < 0 || ::close(release()) == 0 || errno == EINTR; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

[[noreturn]] void write_failed(const std::string& path, int error_number) {
  throw FileError(ExitCode::kWriteFailed, "cannot write", path, error_number);
}

bool write_all(int fd, std::span<const std::byte> data) {
  // Linux writes at most 2 GiB - 4 KiB in one call; smaller chunks end sooner on a signal.
  constexpr size_t kChunk = size_t{64} << 20;
  while (!data.empty()) {
    const ssize_t n =
        retrying([&] { return ::write(fd, data.data(), std::min(data.size(), kChunk)); });
    if (n <= 0) {
      return false;
    }
    data = data.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool write_chunks(int fd, std::span<const std::span<const std::byte>> chunks) {
  return std::all_of(chunks.begin(), chunks.end(),
                     [&](std::span<const std::byte> chunk) { return write_all(fd, chunk); });
}

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  return retrying([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
}

int rename_retrying(const std::string& from, const std::string& to) {
  return retrying([&] { return ::rename(from.c_str(), to.c_str()); });
}

int sync_retrying(int fd) {
  return retrying([fd] { return ::fsync(fd); });
}

}  // namespace

FileError::FileError(ExitCode code, const std::string& action, std::string path, int error_number)
    : RuntimeFailure(code, fmt::format("{} `{}`: {}", action, path, std::strerror(error_number))),
      path_(std::move(path)),
      error_number_(error_number) {}

FileError::FileError(ExitCode code, const std::string& message, std::string path)
    : RuntimeFailure(code, message), path_(std::move(path)) {}

InputFile::InputFile(std::string path, Links links) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe without a writer must not wait for one.
  const int flags = O_RDONLY | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  Descriptor fd(open_retrying(path_, flags));
  if (fd.get() < 0) {
    if (errno == ELOOP && links == Links::kRefuse) {
      throw FileError(ExitCode::kData,
                      fmt::format("`{}` is a symbolic link; give the file itself", path_), path_);
    }
    throw FileError(ExitCode::kData, "cannot open", path_, errno);
  }
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) {
    throw FileError(ExitCode::kData, "cannot read", path_, errno);
  }
  if (S_ISDIR(status.st_mode)) {
    throw FileError(ExitCode::kData, "cannot read", path_, EISDIR);
  }
  if (!S_ISREG(status.st_mode)) {
    throw FileError(ExitCode::kData, fmt::format("`{}` is not a regular file", path_), path_);
  }
  size_ = static_cast<uint64_t>(status.st_size);
  fd_ = fd.release();
}

InputFile::~InputFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

void InputFile::read_at(uint64_t offset, std::byte* to, size_t num_bytes) const {
  constexpr size_t kChunk = size_t{256} << 20;
  while (num_bytes > 0) {
    const ssize_t n = retrying(
        [&] { return ::pread(fd_, to, std::min(num_bytes, kChunk), static_cast<off_t>(offset)); });
    if (n < 0) {
      throw FileError(ExitCode::kData, "cannot read", path_, errno);
    }
    if (n == 0) {
      throw FileError(ExitCode::kData,
                      fmt::format("`{}` ends at byte {}, {} more were expected: was it cut short "
                                  "while it was read?",
                                  path_, offset, num_bytes),
                      path_);
    }
    offset += static_cast<uint64_t>(n);
    to += n;
    num_bytes -= static_cast<size_t>(n);
  }
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
  Descriptor fd(open_retrying(path, O_RDONLY));
  if (fd.get() < 0) {
    throw FileError(ExitCode::kData, "cannot open", path, errno);
  }
  std::string text;
  struct stat status;
  if (::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    // At once: a text that grows takes up to three times its size.
    text.reserve(std::min(static_cast<uint64_t>(status.st_size), max_bytes));
  }
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = retrying([&] { return ::read(fd.get(), buffer, sizeof(buffer)); });
    if (n < 0) {
      throw FileError(ExitCode::kData, "cannot read", path, errno);
    }
    if (n == 0) {
      return text;
    }
    if (text.size() + static_cast<size_t>(n) > max_bytes) {
      throw FileError(ExitCode::kData,
                      fmt::format("`{}` is longer than {}", path,
                                  format_bytes(static_cast<int64_t>(max_bytes))),
                      path);
    }
    text.append(buffer, static_cast<size_t>(n));
  }
}

std::string read_utf8(const std::string& path, uint64_t max_bytes) {
  std::string text = read_file(path, max_bytes);
  if (starts_with(text, kByteOrderMark)) {
    text.erase(0, kByteOrderMark.size());
  }
  return text;
}

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const auto [folder, name] = split_path(path);
  // A name may have 255 bytes; the part of the final name is only there for people.
  return fmt::format("{}/.{}.{}-{}.tmp", folder, name.substr(0, 200), ::getpid(), counter++);
}

void commit_temporary(const std::string& temporary, const std::string& path) {
  Descriptor fd(open_retrying(temporary, O_RDONLY));
  if (fd.get() < 0 || sync_retrying(fd.get()) != 0 || rename_retrying(temporary, path) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    write_failed(path, error_number);
  }
  sync_folder(split_path(path).first);
}

void write_file_atomic(const std::string& path,
                       std::span<const std::span<const std::byte>> chunks) {
  struct stat status;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    write_failed(path, EISDIR);
  }
  if (exists && !S_ISREG(status.st_mode)) {
    Descriptor fd(open_retrying(path, O_WRONLY));
    if (fd.get() < 0 || !write_chunks(fd.get(), chunks) || !fd.close()) {
      write_failed(path, errno);
    }
    return;
  }
  std::string temporary;
  int opened = -1;
  // A name left by a killed process of the same number may be in the way.
  for (int attempt = 0; attempt < 100 && opened < 0; ++attempt) {
    temporary = temporary_name(path);
    opened = open_retrying(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (opened < 0 && errno != EEXIST) {
      break;
    }
  }
  if (opened < 0) {
    write_failed(path, errno);
  }
  Descriptor fd(opened);
  if (!write_chunks(fd.get(), chunks) || sync_retrying(fd.get()) != 0 || !fd.close() ||
      rename_retrying(temporary, path) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    write_failed(path, error_number);
  }
  sync_folder(split_path(path).first);
}

void write_file_atomic(const std::string& path, std::span<const std::byte> data) {
  const std::span<const std::byte> chunks[] = {data};
  write_file_atomic(path, std::span<const std::span<const std::byte>>(chunks));
}

void write_file_atomic(const std::string& path, std::string_view text) {
  write_file_atomic(path, std::as_bytes(std::span(text)));
}

std::vector<std::string> similar_files(const std::string& path, size_t count) {
  constexpr size_t kMaxEntries = 10000;  // enough for a hint, quick in a folder of millions
  const auto [folder, name] = split_path(path);
  std::vector<std::string> names;
  if (DIR* dir = ::opendir(folder.c_str())) {
    while (const dirent* entry = ::readdir(dir)) {
      if (entry->d_name[0] != '.' && names.size() < kMaxEntries) {
        names.emplace_back(entry->d_name);
      }
    }
    ::closedir(dir);
  }
  std::sort(names.begin(), names.end());  // the order in a folder is arbitrary
  return nearest_names(name, names, count);
}

}  // namespace meshtrain
