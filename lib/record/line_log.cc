#include "record/line_log.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/system_calls.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxWaiting = size_t{1} << 20;

}  // namespace

LineLog::LineLog(std::string path, OnTrouble on_trouble, bool append)
    : path_(std::move(path)), on_trouble_(std::move(on_trouble)) {
  const int mode = append ? 0 : O_TRUNC;
  fd_ = retrying(
      [&] { return open(path_.c_str(), O_WRONLY | O_CREAT | mode | O_APPEND | O_CLOEXEC, 0666); });
  if (fd_ < 0) {
    throw FileError(ExitCode::kWriteFailed, "cannot create", path_, errno);
  }
  size_ = append ? std::max<int64_t>(lseek(fd_, 0, SEEK_END), 0) : 0;
}

LineLog::~LineLog() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void LineLog::append(std::string_view line) {
  write(fmt::format("{}\n", line));
}

void LineLog::write(std::string_view bytes) {
  if (waiting_.empty() || waiting_.size() + bytes.size() < kMaxWaiting) {
    waiting_ += bytes;
  } else {
    lost_ = true;
  }
  if (!write_waiting() && !reported_) {
    reported_ = true;
    on_trouble_(FileError(ExitCode::kWriteFailed, "cannot write", path_, error_number_).what());
  }
}

void LineLog::sync() const {
  retrying([this] { return fdatasync(fd_); });
}

bool LineLog::write_waiting() {
  size_t done = 0;
  while (done < waiting_.size()) {
    const ssize_t written =
        retrying([&] { return ::write(fd_, waiting_.data() + done, waiting_.size() - done); });
    if (written <= 0) {
      error_number_ = written < 0 ? errno : ENOSPC;
      if (done > 0 && ftruncate(fd_, size_) != 0) {
        // Written bytes are kept; only the rest is still to be written.
        size_ += static_cast<int64_t>(done);
        waiting_.erase(0, done);
      }
      return false;
    }
    done += static_cast<size_t>(written);
  }
  size_ += static_cast<int64_t>(done);
  waiting_.clear();
  return true;
}

void LineLog::close() {
  if (fd_ < 0) {
    return;
  }
  const bool complete = (waiting_.empty() || write_waiting()) && !lost_;
  // Linux closes the descriptor even when it reports EINTR.
  const bool closed = ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR;
  if (!complete || !closed) {
    throw FileError(ExitCode::kWriteFailed, "cannot write", path_,
                    complete ? errno : error_number_);
  }
}

}  // namespace meshtrain
