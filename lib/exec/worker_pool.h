// WorkerPool: one thread per core that computes; the thread that calls run() is worker 0.
//
// Workers spin for about 50 us after their work and then sleep. An idle process uses no CPU, and a
// training loop that returns soon pays some tens of nanoseconds for a hand-over. With more workers
// than CPUs, waiting workers yield: slower, but correct.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace meshtrain {

// A reusable barrier of `n` threads.
class SpinBarrier {
 public:
  explicit SpinBarrier(bool oversubscribed = false) : oversubscribed_(oversubscribed) {}
  void wait(int n);

 private:
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  const bool oversubscribed_;
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
  bool oversubscribed_;
  SpinBarrier barrier_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> busy_{false};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> done_{0};
};

// Returns the CPUs to compute on: one hardware thread of each core in the affinity mask, at most as
// many as the control group allows.
std::vector<int> usable_cpus();

}  // namespace meshtrain
