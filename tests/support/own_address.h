// A loopback address of this process alone: no other process has its ports.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "comm/socket.h"

namespace meshtrain::test {

inline std::string own_address() {
  const int pid = ::getpid();
  return fmt::format("127.{}.{}.{}", 1 + (pid >> 16) % 254, (pid >> 8) % 256, pid % 256);
}

// A port at which nobody listened a moment ago, for processes that take their address by number.
inline int free_port() {
  return local_address(hold_port()).port();
}

}  // namespace meshtrain::test
