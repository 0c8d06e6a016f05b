// Activity: what the main thread does, written by it and read by the thread of the heartbeat
// monitor: no lock, a few nanoseconds. A reader sees all values of one moment.
#pragma once

#include <atomic>
#include <cstdint>

namespace meshtrain {

class Activity {
 public:
  struct Values {
    int64_t step = 0, epoch = 0;
    const char* phase = "";  // "data", "forward"
    uint64_t sequence = 0;   // of the collective entered last; 0: none yet
    uint64_t signature = 0;
    const char* collective = "";
    bool inside = false;       // of that collective, or waiting for `awaited`
    const char* awaited = "";  // "reading a variable"; empty: not since that was entered
    int64_t awaited_steps = 0;
    uint64_t entries = 0;  // all that was entered or waited for
    int64_t loss_step = 0;
    uint64_t loss_hash = 0;  // 0: none
    uint64_t changes = 0;    // of all of these
  };

  template <class Change>
  void change(Change&& change) {
    // No fence: a reader that sees any of the new values sees `begun_` as well.
    begun_.store(++changes_, std::memory_order_release);
    change(values_);
    step_.store(values_.step, std::memory_order_release);
    epoch_.store(values_.epoch, std::memory_order_release);
    phase_.store(values_.phase, std::memory_order_release);
    sequence_.store(values_.sequence, std::memory_order_release);
    signature_.store(values_.signature, std::memory_order_release);
    collective_.store(values_.collective, std::memory_order_release);
    inside_.store(values_.inside, std::memory_order_release);
    awaited_.store(values_.awaited, std::memory_order_release);
    awaited_steps_.store(values_.awaited_steps, std::memory_order_release);
    entries_.store(values_.entries, std::memory_order_release);
    loss_step_.store(values_.loss_step, std::memory_order_release);
    loss_hash_.store(values_.loss_hash, std::memory_order_release);
    done_.store(changes_, std::memory_order_release);
  }
  Values read() const;

 private:
  Values values_;  // of the writer
  uint64_t changes_ = 0;
  std::atomic<uint64_t> begun_{0}, sequence_{0}, signature_{0}, loss_hash_{0}, entries_{0},
      done_{0};
  std::atomic<int64_t> step_{0}, epoch_{0}, loss_step_{0}, awaited_steps_{0};
  std::atomic<const char*> phase_{""}, collective_{""}, awaited_{""};
  std::atomic<bool> inside_{false};
};

}  // namespace meshtrain
