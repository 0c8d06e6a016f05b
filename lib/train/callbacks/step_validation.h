// Validation within epochs: after every so many training steps. Not in Keras.
#pragma once

#include "train/callbacks/callback.h"

namespace meshtrain {

// Has no state: a checkpoint of the same step is saved behind the validation.
class StepValidation : public Callback {
 public:
  StepValidation(const StepValidationOptions& options, CallbackContext& context,
                 std::string state_name);

  int64_t steps_until_sync(const TrainPosition& at) const override;
  bool needs_sync(const TrainPosition& at, bool last) override;
  void on_sync(const TrainPosition& at, bool last) override;

 private:
  bool is_due(const TrainPosition& at, bool last) const;

  int64_t every_, steps_;
};

}  // namespace meshtrain
