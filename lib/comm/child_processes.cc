#include "comm/child_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/system_calls.h"
#include "base/text.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"

extern char** environ;

namespace meshtrain {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr double kSecondsToTerminate = 3;
constexpr double kSecondsToKill = 5;

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

// Signals wait while it lives, to be read from fd().
class HeldSignals {
 public:
  explicit HeldSignals(const std::vector<int>& even_if_ignored) {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : kPassedOn) {
      // One that is held waits even where it is ignored, and would be passed on.
      if (!is_ignored(number) || std::find(even_if_ignored.begin(), even_if_ignored.end(),
                                           number) != even_if_ignored.end()) {
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
  ~HeldSignals() {
    close(fd_);
    sigaction(SIGCHLD, &child_before_, nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  int fd() const { return fd_; }
  const sigset_t& before() const { return before_; }

 private:
  static bool is_ignored(int number) {
    struct sigaction now = {};
    return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }

  int fd_ = -1;
  sigset_t before_;
  struct sigaction child_before_;
};

struct Child {
  std::string name;
  pid_t pid = -1;
  bool running = true;
};

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

// Between fork and exec; only calls that are allowed there.
[[noreturn]] void become(char** words, char** environment, const ChildCommand& command,
                         pid_t parent, const sigset_t& mask, int report) {
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
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvpe(words[0], words, environment);
  const int error_number = errno;
  [[maybe_unused]] const ssize_t written = write(report, &error_number, sizeof(error_number));
  _exit(127);
}

Child start(const ChildCommand& command, const HeldSignals& signals) {
  PointerList words(command.words);
  PointerList environment(environment_of(command));
  Pipe report;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(words.data(), environment.data(), command, parent, signals.before(), report.write);
  }
  if (command.inherited >= 0) {
    close(command.inherited);
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

class Children {
 public:
  Children(const std::vector<ChildCommand>& commands, const ChildrenOptions& options)
      : options_(options) {
    try {
      for (const ChildCommand& command : commands) {
        children_.push_back(start(command, signals_));
      }
    } catch (...) {
      pass_on(SIGKILL);
      for (Child& child : children_) {
        waitpid(child.pid, nullptr, 0);
      }
      throw;
    }
  }

  ChildrenEnd run() {
    while (true) {
      reap();
      if (num_running() == 0) {
        return end_;
      }
      hurry();
      wait();
    }
  }

 private:
  int num_running() const {
    int count = 0;
    for (const Child& child : children_) {
      count += child.running ? 1 : 0;
    }
    return count;
  }

  void pass_on(int number) {
    for (const Child& child : children_) {
      if (child.running) {
        kill(child.pid, number);
      }
    }
  }

  void reap() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running ||
          retrying([&] { return waitpid(child.pid, &status, WNOHANG); }) != child.pid) {
        continue;
      }
      child.running = false;
      const bool killed = WIFSIGNALED(status);
      const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (killed && !sent_kill_ && options_.say) {
        options_.say(fmt::format("{} (pid {}) was ended by signal {} ({})", child.name, child.pid,
                                 WTERMSIG(status), strsignal(WTERMSIG(status))));
      }
      if (code != 0 && end_.exit_code == 0) {
        end_.exit_code = code;
        end_.name = child.name;
      }
      // Children that stop on request still save, for as long as that takes.
      if (code != 0 && code != static_cast<int>(ExitCode::kStopped) && failed_at_ < 0) {
        failed_at_ = steady_seconds();
      }
    }
  }

  // After a failure: the others end by themselves, or are made to.
  void hurry() {
    if (failed_at_ < 0) {
      return;
    }
    const double passed = steady_seconds() - failed_at_;
    if (passed >= kSecondsToKill && !sent_kill_) {
      sent_kill_ = true;
      pass_on(SIGKILL);
    } else if (passed >= kSecondsToTerminate && !sent_terminate_) {
      sent_terminate_ = true;
      pass_on(SIGTERM);
    }
  }

  void wait() {
    pollfd source = {signals_.fd(), POLLIN, 0};
    // A SIGCHLD may be lost to a thread of a library that does not block it.
    poll(&source, 1, failed_at_ < 0 ? 1000 : 100);
    signalfd_siginfo info = {};
    while (read(signals_.fd(), &info, sizeof(info)) == sizeof(info)) {
      const int number = static_cast<int>(info.ssi_signo);
      const int passed = number == SIGCHLD    ? 0
                         : options_.translate ? options_.translate(number)
                                              : number;
      if (passed != 0) {
        pass_on(passed);
        end_.signals.insert(passed);
      }
    }
  }

  const ChildrenOptions& options_;
  HeldSignals signals_{options_.even_if_ignored};
  std::vector<Child> children_;
  ChildrenEnd end_;
  double failed_at_ = -1;
  bool sent_terminate_ = false, sent_kill_ = false;
};

std::vector<ChildCommand> rank_commands(const std::vector<std::string>& words, int count,
                                        const Environment& environment) {
  // Not that of the environment: a launcher that started this process may listen there.
  Socket held = hold_port();
  if (!held) {
    throw RuntimeFailure(ExitCode::kRankLost, fmt::format("there is no free port on 127.0.0.1: {}",
                                                          std::strerror(errno)));
  }
  const std::string port = std::to_string(local_address(held).port());
  const std::string token = to_text(random_token());
  std::vector<ChildCommand> out;
  for (int rank = 0; rank < count; ++rank) {
    ChildCommand command{fmt::format("rank {}", rank), words, environment};
    for (const auto& [name, value] : Environment{{"MESHTRAIN_TOKEN", token},
                                                 {"RANK", std::to_string(rank)},
                                                 {"WORLD_SIZE", std::to_string(count)},
                                                 {"LOCAL_RANK", std::to_string(rank)},
                                                 {"LOCAL_WORLD_SIZE", std::to_string(count)},
                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                 {"MASTER_PORT", port}}) {
      command.environment.emplace_back(name, value);
    }
    out.push_back(std::move(command));
  }
  for (ChildCommand& command : out) {  // the others have a variable without a socket
    command.environment.emplace_back("MESHTRAIN_SOCKET",
                                     &command == &out[0] ? std::to_string(held.fd()) : "");
  }
  out[0].inherited = held.release();
  return out;
}

}  // namespace

ChildrenEnd run_children(const std::vector<ChildCommand>& commands,
                         const ChildrenOptions& options) {
  return Children(commands, options).run();
}

ChildrenEnd run_processes(const std::vector<std::string>& words, int count,
                          const Environment& environment, const ChildrenOptions& options) {
  constexpr int kFirstSignal = 129, kLastSignal = 128 + 64;
  ChildrenEnd end = run_children(rank_commands(words, count, environment), options);
  if (count > 1 && end.exit_code >= kFirstSignal && end.exit_code <= kLastSignal &&
      end.exit_code != static_cast<int>(ExitCode::kInterrupted) &&
      end.exit_code != static_cast<int>(ExitCode::kTerminated)) {
    end.exit_code = static_cast<int>(ExitCode::kRankLost);
  }
  return end;
}

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::string shell_quoted(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,@%";
  std::string out;
  for (const std::string& word : words) {
    out += out.empty() ? "" : " ";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) {
      out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    out += '\'';
  }
  return out;
}

}  // namespace meshtrain
