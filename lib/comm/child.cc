#include "comm/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/system_calls.h"
#include "base/text.h"

extern char** environ;

namespace meshtrain {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// Arguments of execvpe(), built before fork(): a child of a process with threads must not allocate.
class PointerList {
 public:
  explicit PointerList(std::vector<std::string> texts) : texts_(std::move(texts)) {
    for (std::string& text : texts_) {
      pointers_.push_back(text.data());
    }
    pointers_.push_back(nullptr);
  }
  PointerList(const PointerList&) = delete;
  PointerList& operator=(const PointerList&) = delete;
  char** data() { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

std::vector<std::string> environment_of(const ChildCommand& command) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : command.environment) {
      replaced = replaced || starts_with(text, name + "=");
    }
    if (!replaced) {
      out.emplace_back(text);
    }
  }
  for (const auto& [name, value] : command.environment) {
    out.push_back(name + "=" + value);
  }
  return out;
}

struct Pipe {
  int read = -1, write = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw RuntimeFailure(ExitCode::kRankLost,
                           fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  static void close_end(int& end) {
    if (end >= 0) {
      close(end);
      end = -1;
    }
  }
};

// For what a child writes; -1: this process's own streams.
int open_output(const std::string& path) {
  if (path.empty()) {
    return -1;
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) {
    throw FileError(ExitCode::kWriteFailed, "cannot write", path, errno);
  }
  return fd;
}

std::optional<cpu_set_t> set_of(const std::vector<int>& cpus) {
  if (cpus.empty()) {
    return std::nullopt;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    CPU_SET(cpu, &set);
  }
  return set;
}

// Between fork and exec; only calls that are allowed there.
[[noreturn]] void become(char** words, char** environment, const ChildCommand& command,
                         pid_t parent, const sigset_t& mask, int report, int output,
                         const cpu_set_t* cpus) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, command.death_signal);
  if (getppid() != parent) {
    _exit(127);
  }
  close(STDIN_FILENO);
  open("/dev/null", O_RDONLY);  // takes its place
  if (command.inherited >= 0) {
    fcntl(command.inherited, F_SETFD, 0);
  }
  if (output >= 0) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  if (cpus != nullptr) {
    sched_setaffinity(0, sizeof(*cpus), cpus);  // fails where it is not allowed; slower, not wrong
  }
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvpe(words[0], words, environment);
  const int error_number = errno;
  [[maybe_unused]] const ssize_t written = write(report, &error_number, sizeof(error_number));
  _exit(127);
}

}  // namespace

RunningChild start_child(const ChildCommand& command, const HeldSignals& signals) {
  PointerList words(command.words);
  PointerList environment(environment_of(command));
  Pipe report;
  const int output = open_output(command.output);
  const std::optional<cpu_set_t> cpus = set_of(command.cpus);
  sigset_t mask = signals.before();
  for (const int number : {SIGUSR1, SIGUSR2, SIGHUP}) {
    if (command.holds_signals) {
      sigaddset(&mask, number);
    }
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(words.data(), environment.data(), command, parent, mask, report.write, output,
           cpus ? &*cpus : nullptr);
  }
  if (command.inherited >= 0) {
    close(command.inherited);
  }
  if (output >= 0) {
    close(output);
  }
  if (pid < 0) {
    throw RuntimeFailure(ExitCode::kRankLost, fmt::format("cannot start `{}`: {}", command.words[0],
                                                          std::strerror(errno)));
  }
  setpgid(pid, pid);  // parent and child: the first one wins
  Pipe::close_end(report.write);
  int error_number = 0;
  if (retrying([&] { return read(report.read, &error_number, sizeof(error_number)); }) > 0) {
    waitpid(pid, nullptr, 0);
    throw RuntimeFailure(ExitCode::kRankLost, fmt::format("cannot start `{}`: {}", command.words[0],
                                                          std::strerror(error_number)));
  }
  return {command.name, pid};
}

HeldSignals::HeldSignals(const std::vector<int>& even_if_ignored) {
  sigset_t held;
  sigemptyset(&held);
  for (const int number : kPassedOn) {
    // One that is held waits even where it is ignored, and would be passed on.
    if (!is_ignored(number) || std::find(even_if_ignored.begin(), even_if_ignored.end(), number) !=
                                   even_if_ignored.end()) {
      sigaddset(&held, number);
    }
  }
  sigaddset(&held, SIGCHLD);
  sigprocmask(SIG_BLOCK, &held, &before_);
  struct sigaction action = {};  // an ignored SIGCHLD would lose the children's codes
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &child_before_);
  fd_ = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  MESHTRAIN_CHECK(fd_ >= 0, "signalfd: {}", std::strerror(errno));
}

HeldSignals::~HeldSignals() {
  close(fd_);
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> HeldSignals::wait(int milliseconds) {
  pollfd source = {fd_, POLLIN, 0};
  poll(&source, 1, milliseconds);
  std::vector<int> out;
  signalfd_siginfo info = {};
  while (read(fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) {
      out.push_back(static_cast<int>(info.ssi_signo));
    }
  }
  return out;
}

std::optional<ChildStatus> reap(RunningChild& child) {
  int status = 0;
  if (!child.running ||
      retrying([&] { return ::waitpid(child.pid, &status, WNOHANG); }) != child.pid) {
    return std::nullopt;
  }
  child.running = false;
  return WIFSIGNALED(status) ? ChildStatus{128 + WTERMSIG(status), WTERMSIG(status)}
                             : ChildStatus{WEXITSTATUS(status), 0};
}

bool is_any_running(const std::vector<RunningChild>& children) {
  return std::any_of(children.begin(), children.end(),
                     [](const RunningChild& child) { return child.running; });
}

void signal_running(const std::vector<RunningChild>& children, int number) {
  for (const RunningChild& child : children) {
    if (child.running) {
      ::kill(child.pid, number);
    }
  }
}

void kill_running(const std::vector<RunningChild>& children) {
  signal_running(children, SIGKILL);
  for (const RunningChild& child : children) {
    if (child.running) {
      ::waitpid(child.pid, nullptr, 0);
    }
  }
}

}  // namespace meshtrain
