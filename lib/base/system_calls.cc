#include "base/system_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "base/file.h"

namespace meshtrain {

void sync_folder(const std::string& path) {
  const int fd = retrying([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) {
    throw FileError(ExitCode::kWriteFailed, "cannot open", path, errno);
  }
  const int result = retrying([fd] { return ::fsync(fd); });
  const int error_number = errno;
  ::close(fd);
  if (result != 0 && error_number != EINVAL) {
    throw FileError(ExitCode::kWriteFailed, "cannot sync", path, error_number);
  }
}

bool is_ignored(int signal) {
  struct sigaction now = {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void use_handler_stack() {
  stack_t now = {};
  if (::sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) {
    return;  // a sanitizer's
  }
  const size_t bytes = static_cast<size_t>(std::max<long>(SIGSTKSZ, 64 << 10));
  static thread_local std::byte* const memory =
      new std::byte[bytes];  // as long as signals may come
  stack_t stack = {};
  stack.ss_sp = memory;
  stack.ss_size = bytes;
  ::sigaltstack(&stack, nullptr);
}

}  // namespace meshtrain
