// CallbackList: the callbacks of a run, called in the order of the config.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/callbacks/callback.h"

namespace meshtrain {

class CallbackList {
 public:
  explicit CallbackList(CallbackContext context) : context_(std::move(context)) {}
  CallbackList(const CallbackList&) = delete;  // callbacks refer to the context
  CallbackList& operator=(const CallbackList&) = delete;

  CallbackContext& context() { return context_; }
  void add(std::unique_ptr<Callback> callback) { callbacks_.push_back(std::move(callback)); }
  const std::vector<std::unique_ptr<Callback>>& all() const { return callbacks_; }

  void on_train_begin(const TrainPosition& at);
  void on_epoch_begin(int64_t epoch);
  int64_t steps_to_turn() const;
  void on_train_batch_end(int64_t epoch, int64_t batch);
  void on_invalid_loss(int64_t batch);
  void on_test_begin();
  void on_test_end(const Logs& logs);
  void on_epoch_end(int64_t epoch, Logs& logs);
  void on_epochs_end();
  void on_train_end();
  void sync();

  bool stop_training() const { return context_.stop_training; }
  // The saves asked for since the last call.
  std::vector<CallbackContext::StateSave> take_state_saves();

 private:
  CallbackContext context_;
  std::vector<std::unique_ptr<Callback>> callbacks_;
};

}  // namespace meshtrain
