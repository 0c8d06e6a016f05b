// WorkerPool: one thread per core that computes; the thread that calls run() is worker 0.
//
// Workers spin for about 50 us after their work and then sleep. An idle process uses no CPU, and a
// training loop that returns soon pays some tens of nanoseconds for a hand-over. Workers that wait
// for one another spin longer, and soon sleep where other programs use their cores.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace meshtrain {

// A number that threads change and wait for: they spin, then sleep.
class Signal {
 public:
  // The longest time that a thread spins; 0: it sleeps at once, for more threads than cores.
  explicit Signal(std::chrono::nanoseconds spin) : longest_(spin.count()), spin_(spin.count()) {}

  uint32_t load() const { return value_.load(std::memory_order_acquire); }
  // Of one thread at a time.
  void store(uint32_t value);
  void increment();
  // Returns when the number is not `value`. After a sleep the next waits spin for half the time,
  // down to 50 us; it grows again with waits that need no sleep. A thread that is off its core is
  // away for milliseconds, and spinning meanwhile only uses up the share of the core that this
  // thread needs for its own work.
  void wait_while(uint32_t value);

 private:
  bool spin_while(uint32_t value, int64_t spin) const;  // whether it became another
  void wake();

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
  const int64_t longest_;      // ns
  std::atomic<int64_t> spin_;  // ns
};

// A reusable barrier of `n` threads.
class SpinBarrier {
 public:
  explicit SpinBarrier(bool oversubscribed = false);
  void wait(int n);

 private:
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) Signal phase_;
};

class WorkerPool {
 public:
  using Job = void (*)(void* context, int worker);

  // 0: one per core that this process may use. Only as many workers as cores are pinned.
  explicit WorkerPool(int num_workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // Calls job(context, w) for w = 0 ... size() - 1 in parallel, w = 0 on this thread, and returns
  // when all are done. One caller at a time. `job` must not throw.
  void run(Job job, void* context);
  // As run() with worker 0 alone; `job` may throw.
  void run_alone(Job job, void* context);
  // Between the workers of a run.
  void barrier() { barrier_.wait(size()); }

 private:
  void loop(int worker);
  void move_caller_away();

  std::vector<std::thread> threads_;
  std::vector<int> cpus_;  // of each worker, when pinned
  const bool oversubscribed_;
  SpinBarrier barrier_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> busy_{false};
  alignas(64) Signal generation_;
  alignas(64) Signal done_;
};

// Returns the CPUs to compute on: one hardware thread of each core in the affinity mask, at most as
// many as the control group allows.
std::vector<int> usable_cpus();

}  // namespace meshtrain
