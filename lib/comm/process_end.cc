#include "comm/process_end.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/file.h"
#include "base/text.h"

namespace meshtrain {

bool end_with_parent(int parent) {
  if (::getppid() != parent || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return false;
  }
  if (::getppid() != parent) {  // it ended in between: no signal will come
    ::kill(::getpid(), SIGKILL);
  }
  return true;
}

bool end_with_parent(std::span<const std::string_view> programs) {
  const int parent = ::getppid();
  try {
    const std::string comm = read_file(fmt::format("/proc/{}/comm", parent), 4096);
    return std::find(programs.begin(), programs.end(), trim(comm)) != programs.end() &&
           end_with_parent(parent);
  } catch (const FileError&) {  // it has ended, or there is no /proc
    return false;
  }
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

std::thread quiet_thread(std::function<void()> work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace meshtrain
