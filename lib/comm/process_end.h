// That a process ends, whatever it is doing: with the program that started it, after a time, or
// when the start of a run takes too long.
#pragma once

#include <time.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "comm/meeting.h"

namespace meshtrain {

// SIGKILL to this process when `parent`, which started it, ends (prctl PR_SET_PDEATHSIG). False,
// and nothing done, when its parent is another process: it has ended already, or there is a shell
// between them. More exactly it is the thread that started this process whose end counts.
bool end_with_parent(int parent);
// The same if the parent is a program with one of these names ("orted", "slurmstepd"), as
// /proc/PID/comm has them: those that stay as long as the processes that they started.
bool end_with_parent(std::span<const std::string_view> programs);

// From the kernel, so it needs no thread of this process that still runs. 0: never.
class KillTimer {
 public:
  KillTimer() = default;
  ~KillTimer();
  KillTimer(const KillTimer&) = delete;
  KillTimer& operator=(const KillTimer&) = delete;

  void start(double seconds);

 private:
  timer_t timer_ = {};
  bool started_ = false;
};

// While it lives: what does not end in time ends the process, with a message E612 and exit code 8.
//
//   TimeLimit limit(60, "the start of MPI (MPI_Init_thread)");
class TimeLimit {
 public:
  TimeLimit(double seconds, std::string what, Print print = print_to_stderr,
            std::function<void(int)> exit = {});
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::thread thread_;
};

// A thread that gets no signals: they are for the main thread.
std::thread quiet_thread(std::function<void()> work);

}  // namespace meshtrain
