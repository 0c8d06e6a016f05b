#include "train/callbacks/callback_list.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace meshtrain {

std::string CallbackContext::resolve(const std::string& path) const {
  // The run's folder stays as it is written: behind a link, `..` is elsewhere.
  return (std::filesystem::path(run_dir) / std::filesystem::path(path).lexically_normal()).string();
}

std::string CallbackContext::output(const std::string& path) const {
  return writes ? resolve(path) : "/dev/null";
}

const double* find_log(const Logs& logs, std::string_view name) {
  const auto found =
      std::find_if(logs.begin(), logs.end(), [&](const auto& log) { return log.first == name; });
  return found == logs.end() ? nullptr : &found->second;
}

void set_log(Logs& logs, const std::string& name, double value) {
  const auto found =
      std::find_if(logs.begin(), logs.end(), [&](const auto& log) { return log.first == name; });
  if (found == logs.end()) {
    logs.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

void CallbackList::on_train_begin(const TrainPosition& at) {
  for (const auto& callback : callbacks_) {
    callback->on_train_begin(at);
  }
}

void CallbackList::on_epoch_begin(int64_t epoch) {
  for (const auto& callback : callbacks_) {
    callback->on_epoch_begin(epoch);
  }
}

int64_t CallbackList::steps_to_turn() const {
  int64_t steps = std::numeric_limits<int64_t>::max();
  for (const auto& callback : callbacks_) {
    steps = std::min(steps, callback->steps_to_turn());
  }
  return steps;
}

void CallbackList::on_train_batch_end(int64_t epoch, int64_t batch) {
  for (const auto& callback : callbacks_) {
    callback->on_train_batch_end(epoch, batch);
  }
}

void CallbackList::on_invalid_loss(int64_t batch) {
  for (const auto& callback : callbacks_) {
    callback->on_invalid_loss(batch);
  }
}

void CallbackList::on_test_begin() {
  for (const auto& callback : callbacks_) {
    callback->on_test_begin();
  }
}

void CallbackList::on_test_end(const Logs& logs) {
  for (const auto& callback : callbacks_) {
    callback->on_test_end(logs);
  }
}

void CallbackList::on_epoch_end(int64_t epoch, Logs& logs) {
  for (const auto& callback : callbacks_) {
    callback->on_epoch_end(epoch, logs);
  }
}

void CallbackList::on_epochs_end() {
  for (const auto& callback : callbacks_) {
    callback->on_epochs_end();
  }
}

void CallbackList::on_train_end() {
  for (const auto& callback : callbacks_) {
    callback->on_train_end();
  }
}

void CallbackList::sync() {
  for (const auto& callback : callbacks_) {
    callback->sync();
  }
}

std::vector<CallbackContext::StateSave> CallbackList::take_state_saves() {
  return std::exchange(context_.state_saves, {});
}

}  // namespace meshtrain
