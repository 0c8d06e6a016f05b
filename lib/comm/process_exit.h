// Forced exit: ends a process after a time limit, or when the start of a run takes too long, and
// reports where it was.
#pragma once

#include <pthread.h>
#include <time.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/rendezvous.h"

namespace meshtrain {

// Returns the parent process when it is a launcher (mpirun, orted, slurmstepd, ...), which lives as
// long as the processes of a run; 0 for any other parent, such as a shell.
int launcher_pid();
// "mpirun", as /proc has it; empty for a process that has ended.
std::string program_of(int pid);

// Kills the process by a timer of the kernel, which needs no running thread of it. 0: never.
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

// While it lives, exceeding the time limit ends the process with a message E612 and exit code 8.
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
  std::jthread thread_;
};

// Whether this process is the first on its host to take `name`; it keeps it until it ends.
bool claim_on_host(const std::string& name);

// Writes `title` and the functions that `thread` is in to standard error, as `program(+0x1f2a)`:
// `addr2line -e program 0x1f2a` gives file and line. Interrupts the thread by a signal (the last
// real-time one) and waits for it one second at most; says so where it does not answer.
void dump_stack(pthread_t thread, const std::string& title);

}  // namespace meshtrain
