// Processes that are killed, stopped and continued, end or fail: what becomes of all the others.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "comm/process_exit.h"
#include "comm/socket.h"
#include "control_ranks.h"
#include "support/load_factor.h"
#include "support/own_address.h"

namespace meshtrain::test {
namespace {

constexpr double kHardLimit = 300;  // of one test: then everything is killed and it has failed

// Whether no more than `limit` seconds have passed, as they pass on a machine that others keep
// busy.
bool is_within(double limit, double start) {
  const double seconds = steady_seconds() - start;
  return seconds < limit || seconds < limit * load_factor();
}

// Seconds for an environment variable; more of them on a busy machine, where a rank that is well
// may be silent for as long.
std::string limit_of(int seconds) {
  return std::to_string(std::lround(std::ceil(seconds * load_factor())));
}

// One started process: what it says, what it says of errors, what it ended with.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& env) {
    int in[2], out[2], err[2];
    MESHTRAIN_CHECK(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0 &&
                    ::pipe2(err, O_CLOEXEC) == 0);
    std::vector<char*> argv;
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    pid_ = ::fork();
    MESHTRAIN_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing is left of a test that is killed itself
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      for (const auto& [name, value] : env) {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    in_ = Socket(in[1]);
    out_ = Socket(out[0]);
    err_ = Socket(err[0]);
    for (const int fd : {in[0], out[1], err[1]}) {
      ::close(fd);
    }
  }
  ~Child() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  void line() const { CHECK(::write(in_.fd(), "\n", 1) == 1); }

  // Until it has said `word`, or ended; false when it has not.
  bool says(const std::string& word, double deadline) {
    while (said_.find(word) == std::string::npos) {
      if (!read_some(out_, &said_, deadline)) {
        return false;
      }
    }
    return true;
  }
  // Its exit code, or minus the signal that ended it; 1000 where it did not end.
  int wait(double deadline) {
    while (read_some(out_, &said_, deadline)) {  // until nobody has the other end
    }
    while (read_some(err_, &errors_, deadline)) {
    }
    if (steady_seconds() > deadline) {
      ::kill(pid_, SIGKILL);
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return steady_seconds() > deadline ? 1000
           : WIFEXITED(status)         ? WEXITSTATUS(status)
                                       : -WTERMSIG(status);
  }
  const std::string& errors() const { return errors_; }
  const std::string& said() const { return said_; }

 private:
  static bool read_some(const Socket& from, std::string* to, double deadline) {
    pollfd entry = {from.fd(), POLLIN, 0};
    const double seconds = deadline - steady_seconds();
    char buffer[4096];
    if (seconds <= 0 || ::poll(&entry, 1, static_cast<int>(seconds * 1000)) <= 0) {
      return false;
    }
    const ssize_t count = ::read(from.fd(), buffer, sizeof buffer);
    if (count > 0) {
      to->append(buffer, static_cast<size_t>(count));
    }
    return count > 0;
  }

  pid_t pid_ = -1;
  Socket in_, out_, err_;
  std::string said_, errors_;
  bool ended_ = false;
};

// All ranks of a run, past their first step.
struct Run {
  Run(int size, const std::string& what, int who, std::map<std::string, std::string> env) {
    const int port = free_port();
    env.emplace("MESHTRAIN_TOKEN", "of this run");  // without one rank 0 warns
    for (int rank = 0; rank < size; ++rank) {
      children.push_back(std::make_unique<Child>(
          std::vector<std::string>{CONTROL_PROGRAM, std::to_string(rank), std::to_string(size),
                                   own_address(), std::to_string(port), what, std::to_string(who)},
          env));
    }
    for (const auto& child : children) {
      CHECK(child->says("ready", until));
    }
  }
  Child& operator[](int rank) { return *children[static_cast<size_t>(rank)]; }

  // What each ended with.
  std::vector<int> wait() {
    std::vector<int> codes;
    for (const auto& child : children) {
      codes.push_back(child->wait(until));
    }
    return codes;
  }
  std::string errors_but(int rank) {
    std::string text;
    for (int other = 0; other < static_cast<int>(children.size()); ++other) {
      text += other == rank ? "" : (*this)[other].errors();
    }
    return text;
  }

  const double until = steady_seconds() + kHardLimit;
  std::vector<std::unique_ptr<Child>> children;
};

using Codes = std::vector<int>;

std::string name_of(Run& run, int rank) {
  return fmt::format("rank {} on host {} (pid {})", rank, host_name(), run[rank].pid());
}

TEST_CASE("processes that finish end with 0 and say nothing") {
  Run run(4, "finish", -1, {});
  CHECK(run.wait() == Codes{0, 0, 0, 0});
  CHECK(run.errors_but(-1) == "");
  CHECK(run[1].said() == "ready\n");  // no hook
}

TEST_CASE("a rank that is killed ends all within five seconds with 8 and one message") {
  for (const int signal : {SIGKILL, SIGABRT}) {
    Run run(4, "train", -1, {});
    const double start = steady_seconds();
    run[2].send(signal);
    CHECK(run.wait() == Codes{8, 8, -signal, 8});
    CHECK(is_within(5, start));
    const std::string text = run[0].errors();
    INFO(text);
    CHECK(contains(text, "error[E601]: " + name_of(run, 2) + " ended without a word"));
    CHECK(contains(text, "last report: "));
    CHECK(contains(text, "last complete checkpoint: step 1"));
    CHECK(contains(text, "to resume: the same command with --resume"));
    CHECK(text.find("error") == text.rfind("error"));
    CHECK(run.errors_but(0) == "");
    for (const int rank : {0, 1, 3}) {
      CHECK(contains(run[rank].said(), "hook"));
    }
  }
}

TEST_CASE("a rank that exits before the end is lost like one that is killed") {
  Run run(3, "exit", 1, {});
  run[1].line();
  CHECK(run.wait() == Codes{8, 0, 8});
  CHECK(contains(run[0].errors(), "error[E601]: " + name_of(run, 1)));
}

TEST_CASE("a rank that fails takes all with its own code") {
  Run run(4, "fail", 2, {});
  run[2].line();
  CHECK(run.wait() == Codes{5, 5, 5, 5});
  INFO(run[0].errors());
  CHECK(contains(run[0].errors(), "error[E501]: loss is NaN\n  = on " + name_of(run, 2)));
  CHECK(run.errors_but(0) == "");
}

TEST_CASE("a stopped rank is named within the limit and leaves when it continues") {
  const std::string limit = limit_of(2);
  Run run(4, "train", -1, {{"MESHTRAIN_HEARTBEAT_TIMEOUT", limit}});
  const double start = steady_seconds();
  run[3].send(SIGSTOP);
  CHECK(run[0].wait(run.until) == 8);
  CHECK(run[1].wait(run.until) == 8);
  CHECK(run[2].wait(run.until) == 8);
  CHECK(is_within(std::stoi(limit) + 5, start));
  INFO(run[0].errors());
  const std::string named = "error[E601]: " + name_of(run, 3) + " stopped answering ";
  const size_t at = run[0].errors().find(named);
  REQUIRE(at != std::string::npos);
  const int seconds = std::atoi(run[0].errors().c_str() + at + named.size());
  CHECK(seconds >= std::stoi(limit));
  CHECK(seconds < (std::stoi(limit) + 5) * load_factor());
  CHECK(contains(run[0].errors(), fmt::format("{}{} s ago", named, seconds)));
  CHECK(contains(run[0].errors(), "last report: "));
  run[3].send(SIGCONT);
  CHECK(run[3].wait(run.until) == 8);
  CHECK(run.errors_but(0) == "");
}

TEST_CASE("a stopped rank that may be silent for long is named when the others have waited") {
  const std::string limit = limit_of(2);
  Run run(3, "train", -1,
          {{"MESHTRAIN_HEARTBEAT_TIMEOUT", "60"}, {"MESHTRAIN_COLLECTIVE_TIMEOUT", limit}});
  const double start = steady_seconds();
  run[2].send(SIGSTOP);
  CHECK(run[0].wait(run.until) == 8);
  CHECK(run[1].wait(run.until) == 8);
  CHECK(is_within(std::stoi(limit) + 5 + 10,
                  start));  // with the end, which waits for the stopped one
  INFO(run[0].errors());
  CHECK(contains(run[0].errors(), "error[E602]: "));
  run[2].send(SIGCONT);
  CHECK(run[2].wait(run.until) == 8);
}

TEST_CASE("when rank 0 is killed one of the others says so and all leave") {
  Run run(4, "train", -1, {});
  run[0].send(SIGKILL);
  CHECK(run.wait() == Codes{-SIGKILL, 8, 8, 8});
  const std::string text = run.errors_but(0);
  INFO(text);
  CHECK(contains(text, "error[E601]: " + name_of(run, 0) + " ended without a word"));
  CHECK(contains(text, "last complete checkpoint: step 1"));
  CHECK(text.find("error") == text.rfind("error"));
}

TEST_CASE("ranks 0 and 1 killed together are not the end of the message") {
  Run run(4, "train", -1, {});
  run[0].send(SIGSTOP);  // so that rank 0 cannot speak of rank 1
  run[1].send(SIGKILL);
  run[0].send(SIGKILL);
  CHECK(run.wait() == Codes{-SIGKILL, -SIGKILL, 8, 8});
  const std::string text = run.errors_but(0);
  INFO(text);
  CHECK(contains(text, "error[E601]: " + name_of(run, 0)));
  CHECK(text.find("error") == text.rfind("error"));
}

TEST_CASE("when rank 0 is stopped the others leave and so does it when it continues") {
  Run run(3, "train", -1, {{"MESHTRAIN_HEARTBEAT_TIMEOUT", limit_of(2)}});
  const double start = steady_seconds();
  run[0].send(SIGSTOP);
  CHECK(run[1].wait(run.until) == 8);
  CHECK(run[2].wait(run.until) == 8);
  CHECK(is_within(10, start));  // two seconds of silence, as on an idle machine, and the end
  const std::string text = run.errors_but(0);
  INFO(text);
  CHECK(contains(text, "error[E601]: " + name_of(run, 0) + " stopped answering"));
  CHECK(text.find("error") == text.rfind("error"));
  run[0].send(SIGCONT);
  CHECK(run[0].wait(run.until) == 8);
  CHECK(contains(run[0].errors(), name_of(run, 0) + " was stopped for "));
}

TEST_CASE("all stopped for longer than the limit and continued keep running") {
  const std::string limit = limit_of(4);
  Run run(3, "exit", 2, {{"MESHTRAIN_HEARTBEAT_TIMEOUT", limit}});
  // Each is stopped before the first could find another silent, and continued likewise.
  for (const int signal : {SIGSTOP, SIGCONT}) {
    for (const auto& child : run.children) {
      child->send(signal);
    }
    ::usleep(signal == SIGSTOP ? 1000000 * std::stoi(limit) + 500000 : 0);
  }
  CHECK(::kill(run[0].pid(), 0) == 0);
  run[2].line();  // it is alive and follows commands
  CHECK(run.wait() == Codes{8, 8, 0});
  INFO(run[0].errors());
  CHECK(contains(run[0].errors(), name_of(run, 2) + " ended without a word"));
}

TEST_CASE("a rank that stays in its data while the others wait is named") {
  Run run(4, "hang", 1, {{"MESHTRAIN_COLLECTIVE_TIMEOUT", limit_of(1)}});
  run[1].line();
  CHECK(run.wait() == Codes{8, 8, 8, 8});
  INFO(run[0].errors());
  CHECK(contains(run[0].errors(),
                 "error[E602]: " + name_of(run, 1) + " did not come to all-reduce of bucket 0 (#"));
  CHECK(contains(run[0].errors(),
                 "last report: step 2, data, after all-reduce of bucket 0 (#1) (3 "
                 "other ranks were waiting in"));
  // Where it is: in the end in pause().
  INFO(run[1].errors());
  CHECK(contains(run[1].errors(), "[rank 1] its main thread is in:\n"));
  CHECK(contains(run[1].errors(), "control_program("));
  CHECK(contains(run[1].errors(), "pause"));
  CHECK(run[2].errors() + run[3].errors() == "");
}

TEST_CASE("ranks leave when the launcher that started them is killed") {
  int out[2];
  REQUIRE(::pipe2(out, 0) == 0);
  const std::string host = own_address(), port = std::to_string(free_port());
  const pid_t launcher = ::fork();
  REQUIRE(launcher >= 0);
  if (launcher == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(out[1], STDERR_FILENO);
    for (const char* rank : {"0", "1", "2"}) {
      if (::fork() == 0) {
        ::execl(CONTROL_PROGRAM, CONTROL_PROGRAM, rank, "3", host.c_str(), port.c_str(), "parent",
                nullptr);
        ::_exit(127);
      }
    }
    while (true) {
      ::pause();
    }
  }
  ::close(out[1]);
  const Socket from(out[0]);
  std::string text;
  const auto count = [&](const std::string& word) {
    int found = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      ++found;
    }
    return found;
  };
  // Until nobody has the other end of the pipe any more: all have ended.
  const double until = steady_seconds() + kHardLimit;
  bool killed = false;
  char buffer[4096];
  pollfd entry = {from.fd(), POLLIN, 0};
  while (::poll(&entry, 1, static_cast<int>((until - steady_seconds()) * 1000)) > 0) {
    const ssize_t got = ::read(from.fd(), buffer, sizeof buffer);
    if (got <= 0) {
      break;
    }
    text.append(buffer, static_cast<size_t>(got));
    if (!killed && count("ready") == 3) {
      killed = true;
      ::kill(launcher, SIGKILL);
      ::waitpid(launcher, nullptr, 0);
    }
  }
  INFO(text);
  CHECK(steady_seconds() < until);
  CHECK(killed);
  CHECK(count(fmt::format("error[E601]: {} (pid {}) on host {}, which started the "
                          "processes, has ended; training stopped",
                          program_of(::getpid()), launcher, host_name())) == 1);
  CHECK(count("error") == 1);
}

TEST_CASE("a process that no launcher started has none to end with") {
  CHECK(launcher_pid() == 0);
  CHECK(contains(program_of(::getpid()), "test_control"));
}

TEST_CASE("the kernel kills a process that does not leave by itself") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    static KillTimer timer;
    timer.start(0.05);
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    while (true) {
      ::pause();
    }
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace meshtrain::test
