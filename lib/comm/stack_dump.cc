#include "comm/stack_dump.h"

#include <execinfo.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "comm/meeting.h"

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
