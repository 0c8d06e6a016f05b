#include "base/run_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/text.h"

extern char** environ;

namespace meshtrain {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The text as a file without a name, so that a program that does not read it blocks nobody.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& text) : fd_(memfd_create("stdin", MFD_CLOEXEC)) {
    size_t written = 0;
    while (fd_ >= 0 && written < text.size()) {
      const ssize_t count = write(fd_, text.data() + written, text.size() - written);
      if (count <= 0) {
        break;
      }
      written += static_cast<size_t>(count);
    }
    is_whole_ = fd_ >= 0 && written == text.size() && lseek(fd_, 0, SEEK_SET) == 0;
  }
  ~MemoryFile() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  bool is_whole() const { return is_whole_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  bool is_whole_ = false;
};

// Pointers to texts, with a null at the end, to which posix_spawn does not write.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) {
    out.push_back(const_cast<char*>(text.c_str()));
  }
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_without(const std::vector<std::string>& prefixes) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool is_left_out =
        std::any_of(prefixes.begin(), prefixes.end(),
                    [&](const std::string& prefix) { return starts_with(*entry, prefix); });
    if (!is_left_out) {
      out.emplace_back(*entry);
    }
  }
  return out;
}

// Starts the words in a process group of their own, with the signals' usual actions.
int spawn_command(const std::vector<std::string>& words,
                  const std::vector<std::string>& environment, int input, pid_t& pid) {
  const std::vector<char*> arguments = pointers_to(words), variables = pointers_to(environment);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error =
      posix_spawnp(&pid, arguments[0], &files, &attributes, arguments.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

std::string end_of(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("signal {} ended it", WTERMSIG(status));
  }
  const int code = WEXITSTATUS(status);
  return code == 0 ? "" : fmt::format("it ended with code {}", code);
}

}  // namespace

std::string run_command(const std::vector<std::string>& words, const std::string& input,
                        double timeout, const std::vector<std::string>& without) {
  const MemoryFile file(input);
  if (!file.is_whole()) {
    return "there is no memory for its input";
  }
  pid_t pid = -1;
  if (const int error = spawn_command(words, environment_without(without), file.fd(), pid);
      error != 0) {
    const bool is_line = words.size() == 1 && words[0].find(' ') != std::string::npos;
    return fmt::format("it cannot be started: {}{}", strerror(error),
                       is_line ? "; a line for a shell is written as [sh, -c, \"...\"]" : "");
  }
  const auto deadline = SteadyClock::now() + std::chrono::duration<double>(timeout);
  auto pause = std::chrono::microseconds(100);
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      return end_of(status);
    }
    if (ended < 0 && errno != EINTR) {
      return fmt::format("its end cannot be waited for: {}", strerror(errno));
    }
    if (SteadyClock::now() >= deadline) {
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      return fmt::format("it took longer than {} s and was killed", timeout);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(20000));
  }
}

}  // namespace meshtrain
