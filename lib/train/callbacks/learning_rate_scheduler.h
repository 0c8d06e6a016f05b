// Keras' LearningRateScheduler; its function is an expression (config/rate_expression.h).
#pragma once

#include "config/rate_expression.h"
#include "train/callbacks/callback.h"

namespace meshtrain {

class LearningRateScheduler : public Callback {
 public:
  LearningRateScheduler(const LearningRateSchedulerOptions& options, CallbackContext& context,
                        std::string state_name);

  // Throws ConfigError E132 when the schedule has no value there.
  void on_epoch_begin(const EpochStart& start) override;
  void on_epoch_end(EpochReport& report) override;

 private:
  RateExpression schedule_;
  SourceLoc loc_;  // of the schedule
  bool verbose_;
};

}  // namespace meshtrain
