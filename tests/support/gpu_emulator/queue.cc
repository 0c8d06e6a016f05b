#include "support/gpu_emulator/queue.h"

#include <algorithm>

#include "base/hash.h"
#include "support/gpu_emulator/plan.h"

namespace meshtrain::gpu {

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable())
    thread_.join();
}

void Queue::start_thread() {
  thread_ = std::thread([this] { work(); });
}

void Queue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(work));
  ++pushed_;
  changed_.notify_all();
}

void Queue::drain(int64_t count) {
  if (!thread_.joinable()) {
    while (done_ < count) {
      const std::function<void()> next = std::move(waiting_.front());
      waiting_.pop_front();
      ++done_;
      next();
    }
    return;
  }
  std::unique_lock lock(mutex_);
  wanted_ = std::max(wanted_, count);
  changed_.notify_all();
  changed_.wait(lock, [&] { return done_ >= count || failure_ != nullptr; });
  if (failure_ != nullptr)
    std::rethrow_exception(failure_);
}

void Queue::drain_or(std::chrono::milliseconds limit, const std::function<void()>& otherwise) {
  std::unique_lock lock(mutex_);
  wanted_ = pushed_;
  changed_.notify_all();
  const bool is_done =
      changed_.wait_for(lock, limit, [this] { return done_ >= pushed_ || failure_ != nullptr; });
  lock.unlock();
  if (!is_done)
    otherwise();
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || (!waiting_.empty() && failure_ == nullptr); });
    if (ends_)
      return;
    const uint64_t seed = EmulatorOptions::from_environment().seed;
    const auto delay =
        std::chrono::microseconds(200 + hash_mix(seed, static_cast<uint64_t>(done_)) % 3000);
    changed_.wait_for(lock, delay, [this] { return ends_ || wanted_ > done_; });
    const std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      next();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace meshtrain::gpu
