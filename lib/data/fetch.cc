#include "data/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/curl_library.h"

namespace meshtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxTries = 20;

[[noreturn]] void write_failed(const std::string& path, int error_number) {
  throw FileError(ExitCode::kWriteFailed, "cannot write", path, error_number);
}

std::string bytes_text(uint64_t bytes) {
  return format_thousands(static_cast<int64_t>(bytes));
}

// The file that a download grows in, held by one process at a time. Others may write its folder:
// neither a link nor a file of theirs takes its place, and none of them can write it.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat status;
    if (fd_ < 0 || ::fstat(fd_, &status) != 0) {
      fail(errno);
    }
    const bool is_own =
        S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && status.st_nlink == 1;
    if (!is_own || ::flock(fd_, LOCK_EX | LOCK_NB) != 0 || ::fstat(fd_, &status) != 0 ||
        ::fchmod(fd_, 0600) != 0) {
      fail(is_own ? errno : ELOOP);
    }
    size_ = static_cast<uint64_t>(status.st_size);
  }
  ~PartFile() {
    if (size_ == 0) {
      ::unlink(path_.c_str());
    }
    ::close(fd_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  // False, with error_number(), when it cannot be written.
  bool append(const char* data, size_t num_bytes) {
    while (num_bytes > 0) {
      const ssize_t n = ::pwrite(fd_, data, num_bytes, static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        error_number_ = n < 0 ? errno : ENOSPC;
        return false;
      }
      data += n;
      num_bytes -= static_cast<size_t>(n);
      size_ += static_cast<uint64_t>(n);
    }
    return true;
  }

  void clear() {
    if (::ftruncate(fd_, 0) != 0) {
      write_failed(path_, errno);
    }
    size_ = 0;
  }

  int error_number() const { return error_number_; }

  // Gives it its final name, and the mode of a file that this user makes.
  void commit(const std::string& to) {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::fchmod(fd_, 0666 & ~mask);
    commit_temporary(path_, to);
  }

 private:
  [[noreturn]] void fail(int error_number) {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    if (error_number == EWOULDBLOCK || error_number == ELOOP) {
      throw ConfigError(
          "E325", {},
          fmt::format("`{}`: {}", path_,
                      error_number == ELOOP ? "is a link or belongs to somebody else; remove it"
                                            : "another process is downloading it"));
    }
    write_failed(path_, error_number);
  }

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  int error_number_ = 0;
};

// One request, and what its callbacks see.
struct Transfer {
  PartFile& part;
  const Download& download;
  const FetchOptions& options;
  bool is_too_long = false;
  bool is_stopped = false;
  bool is_silent = false;  // no byte for the time allowed
  Clock::time_point last_byte = Clock::now();
};

size_t on_bytes(char* data, size_t size, size_t count, void* user) {
  auto* const transfer = static_cast<Transfer*>(user);
  transfer->last_byte = Clock::now();
  transfer->is_too_long = transfer->part.size() + size * count > transfer->download.num_bytes;
  return !transfer->is_too_long && transfer->part.append(data, size * count) ? size * count : 0;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto* const transfer = static_cast<Transfer*>(user);
  const std::chrono::duration<double> silence = Clock::now() - transfer->last_byte;
  transfer->is_silent = silence.count() > transfer->options.timeout_seconds;
  transfer->is_stopped = transfer->options.on_progress(transfer->part.size());
  return transfer->is_stopped || transfer->is_silent ? 1 : 0;
}

// The result of a request.
struct Outcome {
  CURLcode code = CURLE_OK;
  long status = 0;      // of HTTP, 0 without an answer
  std::string message;  // of libcurl
};

// Asks for the bytes from part.size() on.
Outcome request(Transfer& transfer) {
  const CurlLibrary& curl = curl_library();
  const std::unique_ptr<CURL, decltype(curl.easy_cleanup)> handle(curl.easy_init(),
                                                                  curl.easy_cleanup);
  MESHTRAIN_CHECK(handle != nullptr);
  char message[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) {
    MESHTRAIN_CHECK(curl.easy_setopt(handle.get(), option, value) == CURLE_OK, "curl option {}",
                    static_cast<int>(option));
  };
  const auto timeout = static_cast<long>(std::ceil(transfer.options.timeout_seconds));
  set(CURLOPT_URL, transfer.download.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 10L);
  set(CURLOPT_FAILONERROR, 1L);  // no error page becomes a part of the file
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, "meshtrain");
  set(CURLOPT_CONNECTTIMEOUT, timeout);
  set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(transfer.part.size()));
  set(CURLOPT_ERRORBUFFER, message);
  set(CURLOPT_WRITEFUNCTION, on_bytes);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  Outcome outcome;
  transfer.last_byte = Clock::now();
  outcome.code = curl.easy_perform(handle.get());
  curl.easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &outcome.status);
  outcome.message =
      transfer.is_silent
          ? fmt::format("no byte for {} s", format_shortest(transfer.options.timeout_seconds))
      : *message != '\0' ? message
                         : curl.easy_strerror(outcome.code);
  return outcome;
}

[[noreturn]] void download_failed(const Transfer& transfer, const Outcome& outcome) {
  const uint64_t have = transfer.part.size();
  throw ConfigError(
      "E325", {},
      fmt::format("cannot download {}: {}{}", transfer.download.url, outcome.message,
                  have > 0 ? fmt::format("; {} of {} bytes are in `{}`, the next try "
                                         "resumes there",
                                         bytes_text(have), bytes_text(transfer.download.num_bytes),
                                         transfer.part.path())
                           : ""));
}

// Fills the part file; false when it was stopped.
bool fill(Transfer& transfer) {
  PartFile& part = transfer.part;
  if (part.size() > transfer.download.num_bytes) {
    part.clear();
  }
  for (int tries = 1; part.size() < transfer.download.num_bytes; ++tries) {
    const uint64_t before = part.size();
    const Outcome outcome = request(transfer);
    if (transfer.is_stopped) {
      return false;
    }
    if (part.error_number() != 0) {
      write_failed(part.path(), part.error_number());
    }
    const bool cannot_resume = outcome.code == CURLE_RANGE_ERROR || outcome.status == 416;
    if (cannot_resume && before > 0) {
      part.clear();  // the server gives whole files only
      continue;
    }
    const bool is_short = outcome.code == CURLE_OK && part.size() < transfer.download.num_bytes;
    if (transfer.is_too_long || is_short) {
      const uint64_t got = part.size();
      part.clear();
      throw ConfigError(
          "E326", {},
          fmt::format("{} is not the file that was expected: it has {} bytes, not {}",
                      transfer.download.url, transfer.is_too_long ? "more" : bytes_text(got),
                      bytes_text(transfer.download.num_bytes)));
    }
    const bool gives_up = part.size() == before || transfer.is_silent || tries == kMaxTries;
    if (outcome.code != CURLE_OK && gives_up) {
      download_failed(transfer, outcome);
    }
  }
  return true;
}

// Whether the file at `path` is the one wanted.
bool is_right(const std::string& path, const Download& download) {
  const InputFile file(path);
  return file.size() == download.num_bytes && sha256_of(file) == download.sha256;
}

}  // namespace

Fetched fetch(const Download& download, const FetchOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(download.path, error)) {
    if (!is_right(download.path, download)) {
      throw ConfigError(
          "E326", {},
          fmt::format("`{}` is another file (SHA-256 {}, expected {}); remove "
                      "it to download it again",
                      download.path, sha256_of(InputFile(download.path)), download.sha256));
    }
    return Fetched::kWasThere;
  }
  const std::string folder = fs::absolute(download.path).parent_path();
  fs::create_directories(folder, error);
  if (error) {
    write_failed(folder, error.value());
  }
  PartFile part(download.path + ".part");
  const bool is_continued = part.size() > 0;
  Transfer transfer{part, download, options};
  for (const bool is_second_try : {false, true}) {
    if (!fill(transfer)) {
      return Fetched::kStopped;
    }
    if (is_right(part.path(), download)) {
      part.commit(download.path);
      return Fetched::kDownloaded;
    }
    const std::string found = sha256_of(InputFile(part.path()));
    part.clear();
    if (is_second_try || !is_continued) {  // the bytes of an earlier try may have been bad
      throw ConfigError("E326", {},
                        fmt::format("{} is not the file that was expected: SHA-256 {}, expected {}",
                                    download.url, found, download.sha256));
    }
  }
  throw InternalError("a third try to fetch");
}

}  // namespace meshtrain
