// Calls that signals may interrupt, and threads that signals leave alone.
#pragma once

#include <signal.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>

namespace meshtrain {

// The result of `call`, which returns a negative number and sets errno when it fails; called again
// when a signal interrupted it.
template <class Call>
auto retrying(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) {
      return result;
    }
  }
}

// Names made in the folder `path`, or taken away, are on the disk afterwards. A file system that
// cannot be asked (EINVAL) does it by itself. Throws FileError (exit 74).
void sync_folder(const std::string& path);

// Whether the process ignores a signal.
bool is_ignored(int signal);

// While it lives, this thread gets no signals, nor do the threads that are made in it as long as
// they live: signals are for the main thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// A thread that gets no signals.
template <class Work>
std::jthread quiet_thread(Work&& work) {
  const SignalsBlocked blocked;
  return std::jthread(std::forward<Work>(work));
}

// Gives the calling thread a stack for handlers that have SA_ONSTACK, unless it has one. Some code
// uses the stack pointer for something else: oneDNN's sgemm loads it from a heap buffer. A
// handler's frame would overwrite the memory below that buffer.
void use_handler_stack();

}  // namespace meshtrain
