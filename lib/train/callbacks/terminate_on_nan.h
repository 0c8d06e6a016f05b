// Keras' TerminateOnNaN: that training ends (E501, exit 5) needs no callback here; this one says so
// in Keras' words.
#pragma once

#include "train/callbacks/callback.h"

namespace meshtrain {

class TerminateOnNaN : public Callback {
 public:
  TerminateOnNaN(const TerminateOnNaNOptions& options, CallbackContext& context,
                 std::string state_name)
      : Callback(context, std::move(state_name)), raises_(options.raise_error) {}

  // With raise_error throws ConfigError E501 itself.
  void on_train_step(const TrainPosition& at, const StepRunner& runner) override;

 private:
  bool raises_;
};

}  // namespace meshtrain
