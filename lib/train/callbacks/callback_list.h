// CallbackList: the callbacks of a run in the order of the config, and what they share.
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

  // The saves asked for since the last call.
  std::vector<StateSave> take_state_saves();
  void sync();

 private:
  CallbackContext context_;
  std::vector<std::unique_ptr<Callback>> callbacks_;
};

}  // namespace meshtrain
