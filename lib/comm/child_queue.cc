#include "comm/child_queue.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "base/system_calls.h"
#include "comm/child.h"

namespace meshtrain {
namespace {

constexpr int kMilliseconds = 100;  // between looks at what shall stop

class Runner {
 public:
  explicit Runner(const ChildQueue& queue) : queue_(queue) {
    children_.resize(static_cast<size_t>(queue.slots));
    for (RunningChild& child : children_) {
      child.running = false;
    }
  }

  int run() {
    try {
      while (true) {
        reap();
        start();
        if (!is_any_running()) {
          return stopped_by_;
        }
        pass_on(signals_.wait(kMilliseconds));
        stop_some();
      }
    } catch (...) {
      for (const RunningChild& child : children_) {
        if (child.running) {
          kill(child.pid, SIGKILL);
          waitpid(child.pid, nullptr, 0);
        }
      }
      throw;
    }
  }

 private:
  bool is_any_running() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const RunningChild& child) { return child.running; });
  }

  void start() {
    for (size_t slot = 0; slot < children_.size() && stopped_by_ == 0; ++slot) {
      RunningChild& child = children_[slot];
      if (child.running) {
        continue;
      }
      const std::optional<ChildCommand> command = queue_.next(static_cast<int>(slot));
      if (!command) {
        return;
      }
      child = start_child(*command, signals_);
      queue_.started(static_cast<int>(slot), child.pid);
    }
  }

  void reap() {
    for (size_t slot = 0; slot < children_.size(); ++slot) {
      RunningChild& child = children_[slot];
      int status = 0;
      if (child.running &&
          retrying([&] { return waitpid(child.pid, &status, WNOHANG); }) == child.pid) {
        child.running = false;
        queue_.ended(static_cast<int>(slot),
                     WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
      }
    }
  }

  void pass_on(const std::vector<int>& signals) {
    for (const int number : signals) {
      const bool stops = number == SIGINT || number == SIGTERM || number == SIGUSR1;
      stopped_by_ = stops && stopped_by_ == 0 ? number : stopped_by_;
      for (const RunningChild& child : children_) {
        if (child.running) {
          kill(child.pid, number);
        }
      }
    }
  }

  void stop_some() {
    for (const int slot : queue_.to_stop()) {
      if (const RunningChild& child = children_[static_cast<size_t>(slot)]; child.running) {
        kill(child.pid, SIGTERM);
      }
    }
  }

  const ChildQueue& queue_;
  HeldSignals signals_{{}};
  std::vector<RunningChild> children_;
  int stopped_by_ = 0;
};

}  // namespace

int run_child_queue(const ChildQueue& queue) {
  return Runner(queue).run();
}

}  // namespace meshtrain
