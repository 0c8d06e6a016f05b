#include "comm/process_end.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/file.h"
#include "base/system_calls.h"
#include "base/text.h"

namespace meshtrain {

std::string program_of(int pid) {
  try {
    return std::string(trim(read_file(fmt::format("/proc/{}/comm", pid), 4096)));
  } catch (const FileError&) {
    return {};
  }
}

int launcher_pid() {
  // Not PR_SET_PDEATHSIG: that counts the end of the thread which started this process, and Open
  // MPI's daemon ends such threads after the start of many processes.
  constexpr std::string_view kLaunchers[] = {
      "mpirun",  "mpirun.openmpi", "mpiexec", "mpiexec.openmp", "orterun", "orted",
      "prterun", "prted",          "prun",    "slurmstepd",     "torchrun"};
  const int parent = ::getppid();
  const std::string name = program_of(parent);
  return std::find(std::begin(kLaunchers), std::end(kLaunchers), name) == std::end(kLaunchers)
             ? 0
             : parent;
}

KillTimer::~KillTimer() {
  if (started_) {
    ::timer_delete(timer_);
  }
}

void KillTimer::start(double seconds) {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  if (seconds <= 0 || started_ || ::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) {
    return;
  }
  started_ = true;
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(seconds);
  when.it_value.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9) + 1;
  ::timer_settime(timer_, 0, &when, nullptr);
}

TimeLimit::TimeLimit(double seconds, std::string what, Print print, std::function<void(int)> exit)
    : thread_(quiet_thread([=, this] {
        std::unique_lock lock(mutex_);
        if (!done_changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                    [this] { return done_; })) {
          print(fmt::format("error[E612]: {} took more than {:g} s; nothing was started\n\n", what,
                            seconds));
          exit ? exit(8) : ::_exit(8);
        }
      })) {}

TimeLimit::~TimeLimit() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  done_changed_.notify_all();
  thread_.join();
}

}  // namespace meshtrain
