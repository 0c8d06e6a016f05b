#include "base/system_calls.h"

#include <fcntl.h>
#include <unistd.h>

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

}  // namespace meshtrain
