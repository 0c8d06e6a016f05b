#include "base/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace meshtrain {
namespace {

// The address space of this process in bytes; 0 when unknown.
uint64_t address_space() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void limit(__rlimit_resource what, uint64_t value) {
  rlimit current = {};
  if (getrlimit(what, &current) == 0 &&
      (current.rlim_max == RLIM_INFINITY || value < current.rlim_max)) {
    const rlimit wanted = {static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
    setrlimit(what, &wanted);
  }
}

bool send_all(int channel, const void* bytes, size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::send(channel, from, count, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      return false;
    }
    from += done;
    count -= static_cast<size_t>(done);
  }
  return true;
}

bool receive_all(int channel, void* to, size_t count) {
  char* into = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = read(channel, into, count);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    into += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

// Only the channel is kept open: locks and the channels of other children end with their owners.
int close_others(int channel) {
  constexpr int kChannel = STDERR_FILENO + 1;
  if (dup2(channel, kChannel) != kChannel) {
    return channel;
  }
  close_range(kChannel + 1, ~0U, 0);
  return kChannel;
}

using Work = std::function<void(const IsolatedProcess::Send&, const IsolatedProcess::Receive&)>;

[[noreturn]] void run_child(int channel, const IsolateLimits& limits, uint64_t memory,
                            const Work& work) {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU, SIGALRM}) {
    signal(number, SIG_DFL);  // no handler of the parent, no report of a sanitizer
  }
  // A stop that the whole group of processes is asked for is the parent's to carry out: it then
  // closes the channel.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    signal(number, SIG_IGN);
  }
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDERR_FILENO);
    dup2(nowhere, STDOUT_FILENO);
  }
  channel = close_others(channel);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, static_cast<uint64_t>(limits.cpu_seconds));
#if !defined(__SANITIZE_ADDRESS__)  // which reserves terabytes of addresses
  if (memory > 0) {
    limit(RLIMIT_AS, memory + limits.memory_bytes);
  }
#else
  static_cast<void>(memory);
#endif
  int code = 0;
  try {
    work([channel](const void* bytes, size_t count) { return send_all(channel, bytes, count); },
         [channel](void* to, size_t count) { return receive_all(channel, to, count); });
  } catch (...) {
    code = 1;
  }
  _exit(code);
}

}  // namespace

IsolatedProcess::IsolatedProcess(const IsolateLimits& limits,
                                 const std::function<void(const Send&)>& work)
    : IsolatedProcess(limits, [&](const Send& send, const Receive&) { work(send); }) {}

IsolatedProcess::IsolatedProcess(const IsolateLimits& limits, const Work& work) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw RuntimeFailure(ExitCode::kMesh, fmt::format("no socket: {}", std::strerror(errno)));
  }
  const uint64_t memory = address_space();
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    run_child(ends[1], limits, memory, work);
  }
  const int error = errno;
  close(ends[1]);
  channel_ = ends[0];
  if (pid_ < 0) {
    close(channel_);
    throw RuntimeFailure(ExitCode::kMesh,
                         fmt::format("cannot start a process: {}", std::strerror(error)));
  }
}

IsolatedProcess::~IsolatedProcess() {
  close(channel_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

bool IsolatedProcess::send(const void* bytes, size_t count) {
  return send_all(channel_, bytes, count);
}

bool IsolatedProcess::receive(void* to, size_t count) {
  return receive_all(channel_, to, count);
}

std::string IsolatedProcess::finish() {
  if (pid_ < 0) {
    return "it has ended";
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) {
      pid_ = -1;
      return "its end was not seen";
    }
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGKILL
               ? "it took too long"
               : fmt::format("the library crashed on it ({})", strsignal(WTERMSIG(status)));
  }
  return WEXITSTATUS(status) == 0 ? "" : "the library failed on it";
}

}  // namespace meshtrain
