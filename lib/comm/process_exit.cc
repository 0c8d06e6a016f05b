#include "comm/process_exit.h"

#include <execinfo.h>
#include <fmt/format.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>

#include "base/file.h"
#include "base/system_calls.h"
#include "base/text.h"

namespace meshtrain {
namespace {

constexpr int kMostFrames = 64;
sem_t g_written;

// In the thread that is asked.
void write_stack(int) {
  const int before = errno;
  void* frames[kMostFrames];
  const int count = ::backtrace(frames, kMostFrames);
  ::backtrace_symbols_fd(frames, count, STDERR_FILENO);
  ::sem_post(&g_written);
  errno = before;
}

}  // namespace

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

bool claim_on_host(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string text = "meshtrain-" + name;
  const size_t length = std::min(text.size(), sizeof address.sun_path - 1);
  std::copy_n(text.begin(), length, address.sun_path + 1);  // a leading zero: no file
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return fd >= 0 &&
         ::bind(fd, reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)) == 0;
}

void dump_stack(pthread_t thread, const std::string& title) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads what it needs, which a handler must not
  ::sem_init(&g_written, 0, 0);
  struct sigaction action = {};
  action.sa_handler = write_stack;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(SIGRTMAX, &action, nullptr);
  print_to_stderr(title + "\n");
  timespec until = {};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += 1;
  int problem = ::pthread_kill(thread, SIGRTMAX);
  while (problem == 0 && ::sem_clockwait(&g_written, CLOCK_MONOTONIC, &until) != 0) {
    problem = errno == EINTR ? 0 : errno;
  }
  if (problem != 0) {
    print_to_stderr("  it does not answer\n");
  }
}

}  // namespace meshtrain
