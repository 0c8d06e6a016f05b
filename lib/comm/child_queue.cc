#include "comm/child_queue.h"

#include <signal.h>

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
        reap_all();
        start();
        if (!is_any_running(children_)) {
          break;
        }
        pass_on(signals_.wait(kMilliseconds));
        stop_some();
      }
    } catch (...) {
      kill_running(children_);
      throw;
    }
    if (not_started_) {
      throw *not_started_;
    }
    return stopped_by_;
  }

 private:
  void start() {
    for (size_t slot = 0; slot < children_.size() && stopped_by_ == 0 && !not_started_; ++slot) {
      RunningChild& child = children_[slot];
      if (child.running) {
        continue;
      }
      const std::optional<ChildCommand> command = queue_.next(static_cast<int>(slot));
      if (!command) {
        return;
      }
      try {
        child = start_child(*command, signals_);
      } catch (const RuntimeFailure& failure) {  // the others can save what they have
        not_started_ = failure;
        signal_running(children_, SIGTERM);
        return;
      }
      queue_.started(static_cast<int>(slot), child.pid);
    }
  }

  void reap_all() {
    for (size_t slot = 0; slot < children_.size(); ++slot) {
      if (const std::optional<ChildStatus> status = reap(children_[slot])) {
        queue_.ended(static_cast<int>(slot), status->exit_code);
      }
    }
  }

  void pass_on(const std::vector<int>& signals) {
    for (const int number : signals) {
      stopped_by_ = stopped_by_ == 0 && queue_.stops(number) ? number : stopped_by_;
      signal_running(children_, number);
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
  std::optional<RuntimeFailure> not_started_;
};

}  // namespace

int run_child_queue(const ChildQueue& queue) {
  return Runner(queue).run();
}

}  // namespace meshtrain
