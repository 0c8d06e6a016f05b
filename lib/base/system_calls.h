// Calls on files that a signal may interrupt.
#pragma once

#include <cerrno>
#include <string>

namespace meshtrain {

// The result of `call`, which returns a negative number and sets errno when it fails; called again
// when a signal interrupted it.
template <class Call>
auto retrying(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) {
      return result;
    }
  }
}

// Names made in the folder `path`, or taken away, are on the disk afterwards. A file system that
// cannot be asked (EINVAL) does it by itself. Throws FileError (exit 74).
void sync_folder(const std::string& path);

}  // namespace meshtrain
