// One child process, and the signals that its parent holds meanwhile: what child_processes.h and
// child_queue.h are made of.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "comm/child_processes.h"

namespace meshtrain {

// While it lives, INT, TERM, HUP, QUIT, USR1, USR2 and CHLD wait to be read.
class HeldSignals {
 public:
  // Signals that this process ignores (nohup, a shell's `&`) are not held, except these.
  explicit HeldSignals(const std::vector<int>& even_if_ignored);
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Waits for a signal, at most so long, and returns those that came, without CHLD.
  std::vector<int> wait(int milliseconds);
  const sigset_t& before() const { return before_; }

 private:
  int fd_ = -1;
  sigset_t before_;
  struct sigaction child_before_;
};

struct RunningChild {
  std::string name;
  pid_t pid = -1;
  bool running = true;
};

// Throws RuntimeFailure (exit 8) when it cannot be started.
RunningChild start_child(const ChildCommand& command, const HeldSignals& signals);

struct ChildStatus {
  int exit_code = 0;  // 128 + signal where one ended it, as shells say it
  int signal = 0;
};
// Returns how a running child has ended; nothing while it runs, and later.
std::optional<ChildStatus> reap(RunningChild& child);

bool is_any_running(const std::vector<RunningChild>& children);
// Sends a signal to those that run.
void signal_running(const std::vector<RunningChild>& children, int number);
// Kills those that run and waits for their ends.
void kill_running(const std::vector<RunningChild>& children);

}  // namespace meshtrain
