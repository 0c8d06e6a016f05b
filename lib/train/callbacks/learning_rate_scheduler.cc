#include "train/callbacks/learning_rate_scheduler.h"

#include <fmt/format.h>

#include "base/text.h"

namespace meshtrain {

LearningRateScheduler::LearningRateScheduler(const LearningRateSchedulerOptions& options,
                                             CallbackContext& context, std::string state_name)
    : Callback(context, std::move(state_name)),
      schedule_(options.schedule),
      loc_(options.schedule.loc),
      verbose_(options.verbose > 0) {}

void LearningRateScheduler::on_epoch_begin(const EpochStart& start) {
  if (start.is_resumed) {
    return;  // the checkpoint has the rate
  }
  double rate = 0;
  try {
    rate = schedule_(start.epoch, context().runner.learning_rate());
  } catch (const ExprError& error) {
    throw ConfigError("E132", loc_, "cannot evaluate the schedule: " + error.message);
  }
  context().runner.set_learning_rate(rate);
  if (verbose_) {
    context().print(fmt::format("\nEpoch {}: LearningRateScheduler setting learning rate to {}.\n",
                                start.epoch + 1, python_float(rate)));
  }
}

void LearningRateScheduler::on_epoch_end(EpochReport& report) {
  set_log(report.logs, "learning_rate", context().runner.learning_rate());
}

}  // namespace meshtrain
