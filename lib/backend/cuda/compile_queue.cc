#include "backend/cuda/compile_queue.h"

#include <algorithm>
#include <utility>

#include "base/system_calls.h"

namespace meshtrain::cuda {
namespace {

size_t most_threads() {
  return std::max<size_t>(std::thread::hardware_concurrency(), 2);
}

}  // namespace

CompileQueue::~CompileQueue() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  // Members are destroyed in reverse: the threads end before what they use.
}

void CompileQueue::add(const std::string& key, std::string text) {
  const std::lock_guard lock(mutex_);
  const auto [job, is_new] = jobs_.try_emplace(key);
  if (!is_new)
    return;
  job->second.text = std::move(text);
  waiting_.push_back(key);
  if (working_ == most_threads())
    return;
  threads_.push_back(quiet_thread([this] { work(); }));
  ++working_;
}

// Ends when no text waits; add() then begins another thread.
void CompileQueue::work() {
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    const std::string key = std::move(waiting_.front());
    waiting_.pop_front();
    const auto job = jobs_.find(key);
    if (job != jobs_.end() && !job->second.is_begun)
      run(job->second, lock);
  }
  --working_;
}

void CompileQueue::run(Job& job, std::unique_lock<std::mutex>& lock) {
  job.is_begun = true;
  lock.unlock();
  std::string code;
  std::exception_ptr error;
  try {
    code = compile_(job.text);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  job.code = std::move(code);
  job.error = error;
  job.is_done = true;
  done_.notify_all();
}

std::optional<std::string> CompileQueue::take(const std::string& key) {
  std::unique_lock lock(mutex_);
  const auto job = jobs_.find(key);
  if (job == jobs_.end())
    return std::nullopt;
  if (!job->second.is_begun)
    run(job->second, lock);
  done_.wait(lock, [&] { return job->second.is_done; });
  const Job done = std::move(job->second);
  jobs_.erase(job);
  if (done.error != nullptr)
    std::rethrow_exception(done.error);
  return std::move(done.code);
}

}  // namespace meshtrain::cuda
