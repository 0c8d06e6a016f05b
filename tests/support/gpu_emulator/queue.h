// What was enqueued on an emulated device and not yet done.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace meshtrain::gpu {

// Work is done as late as possible: when somebody waits for it, by whoever waits. Others that wait
// for this device cannot do so, and so there may be a thread, which does the work a little after it
// came, or when somebody waits.
class Queue {
 public:
  Queue() = default;
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void start_thread();
  void push(std::function<void()> work);
  int64_t pushed() const { return pushed_; }
  // Until as much as `count` of all that was ever pushed is done. Throws what the work threw; what
  // comes after such work is never done.
  void drain(int64_t count);
  void drain() { drain(pushed_); }
  // Calls `otherwise` where not all is done by then.
  void drain_or(std::chrono::milliseconds limit, const std::function<void()>& otherwise);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  int64_t pushed_ = 0, done_ = 0, wanted_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace meshtrain::gpu
