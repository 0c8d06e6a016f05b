#include "comm/monitor_state.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace meshtrain {

void LossHistory::set(int64_t step, uint64_t hash) {
  Entry& entry = entries_[place(step)];
  entry.begun.store(step, std::memory_order_release);
  entry.hash.store(hash, std::memory_order_release);
  entry.done.store(step, std::memory_order_release);
}

bool LossHistory::differs(int64_t step, uint64_t hash) const {
  const Entry& entry = entries_[place(step)];
  if (entry.done.load(std::memory_order_acquire) != step) {
    return false;
  }
  const uint64_t own = entry.hash.load(std::memory_order_acquire);
  return entry.begun.load(std::memory_order_acquire) == step && own != hash;
}

uint64_t AbortHooks::add(std::function<void()> hook) {
  const std::lock_guard lock(mutex_);
  hooks_.emplace_back(++last_id_, std::move(hook));
  return last_id_;
}

void AbortHooks::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(hooks_, [id](const auto& hook) { return hook.first == id; });
}

void AbortHooks::run(const std::function<void(const char* problem)>& report) {
  const std::lock_guard lock(mutex_);
  for (auto hook = hooks_.rbegin(); hook != hooks_.rend(); ++hook) {
    try {
      hook->second();
    } catch (const std::exception& error) {
      report(error.what());
    }
  }
}

MonitorState::MonitorState() : wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

MonitorState::~MonitorState() {
  ::close(wake_fd);
}

void MonitorState::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd, &one, sizeof one);
}

void MonitorState::deliver(const std::string& key, std::vector<std::string> texts) {
  const std::lock_guard lock(mutex);
  gathered[key].push_back(std::move(texts));
  changed.notify_all();
}

void MonitorState::set_finished() {
  const std::lock_guard lock(mutex);
  finished = true;
  changed.notify_all();
}

void MonitorState::set_left(int exit_code) {
  const std::lock_guard lock(mutex);
  left = exit_code;
  changed.notify_all();
}

}  // namespace meshtrain
