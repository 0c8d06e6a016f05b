#include "command.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace meshtrain {
namespace {

struct Pipe {
  Pipe() { REQUIRE(pipe2(ends, O_CLOEXEC) == 0); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int end) {
    if (ends[end] >= 0) {
      close(ends[end]);
      ends[end] = -1;
    }
  }
  int ends[2] = {-1, -1};
};

// In the child: puts a stream where the command wants it.
void redirect(int fd, const std::string& to, int pipe_end) {
  if (to.empty()) {
    dup2(pipe_end, fd);
  } else if (to == "closed") {
    close(fd);
  } else if (to == "pipe without reader") {
    int ends[2];
    if (pipe(ends) != 0) {
      _exit(126);
    }
    close(ends[0]);
    dup2(ends[1], fd);
    close(ends[1]);
  } else {
    const int file = open(to.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(file, fd);
    close(file);
  }
}

[[noreturn]] void exec_child(const Command& command) {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT}) {  // ignored where tests run behind nohup or &
    signal(number, SIG_DFL);
  }
  if (chdir(command.folder.c_str()) != 0) {
    _exit(126);
  }
  for (const std::string& entry : command.environment) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  const std::string program = command.program.empty() ? MESHTRAIN_BINARY : command.program;
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : command.args) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);
  execvp(program.c_str(), argv.data());
  _exit(127);
}

// Appends what `fd` has; false at its end.
bool drain(int fd, std::string& to) {
  char buffer[65536];
  const ssize_t count = read(fd, buffer, sizeof(buffer));
  if (count > 0) {
    to.append(buffer, static_cast<size_t>(count));
    return true;
  }
  return count < 0 && errno == EINTR;  // a terminal whose program ended gives EIO
}

// Reads both streams until they end.
void collect(const Command& command, int out_fd, int err_fd, int pid, int timeout_seconds,
             Result& result) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_seconds);
  bool watching = static_cast<bool>(command.watch);
  pollfd fds[2] = {{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    poll(fds, 2, 20);
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd >= 0 && fds[i].revents != 0 &&
          !drain(fds[i].fd, i == 0 ? result.out : result.err)) {
        fds[i].fd = -1;
      }
    }
    if (watching) {
      watching = !command.watch(result.out, result.err, pid);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      FAIL_CHECK("the command did not end in time");
      return;
    }
  }
}

}  // namespace

bool has_terminals() {
  int terminal = -1, other = -1;
  if (openpty(&terminal, &other, nullptr, nullptr, nullptr) != 0) {
    return false;
  }
  close(terminal);
  close(other);
  return true;
}

Result run(const Command& command, int timeout_seconds) {
  Pipe input, out, err;
  if (command.watch) {
    for (const Pipe* pipe : {&out, &err}) {
      REQUIRE(fcntl(pipe->ends[1], F_SETPIPE_SZ, 4096) > 0);
    }
  }
  int terminal = -1;
  const pid_t pid = command.on_terminal ? forkpty(&terminal, nullptr, nullptr, nullptr) : fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    if (command.on_terminal) {
      termios mode = {};
      tcgetattr(1, &mode);
      mode.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // the bytes as they were written
      tcsetattr(1, TCSANOW, &mode);
    } else {
      dup2(input.ends[0], 0);
      redirect(1, command.out_to, out.ends[1]);
      redirect(2, command.err_to, err.ends[1]);
    }
    exec_child(command);
  }
  out.close_end(1);
  err.close_end(1);
  input.close_end(0);
  signal(SIGPIPE, SIG_IGN);
  if (!command.input.empty()) {
    REQUIRE(write(input.ends[1], command.input.data(), command.input.size()) ==
            static_cast<ssize_t>(command.input.size()));
  }
  input.close_end(1);
  Result result;
  collect(command, command.on_terminal ? terminal : out.ends[0], err.ends[0], pid, timeout_seconds,
          result);
  int status = 0;
  waitpid(pid, &status, 0);
  if (terminal >= 0) {
    close(terminal);
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace meshtrain
