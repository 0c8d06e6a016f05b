#include "train/callbacks/terminate_on_nan.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace meshtrain {

void TerminateOnNaN::on_train_step(const TrainPosition& at, const StepRunner& runner) {
  if (std::isfinite(runner.last_loss())) {
    return;
  }
  const int64_t batch = at.batch - 1;
  if (raises_) {
    throw ConfigError("E501", context().config.compile.optimizer.loc,
                      fmt::format("NaN or Inf loss encountered at batch {}. Loss value: {}. "
                                  "Terminating training immediately.",
                                  batch, python_float(runner.last_loss())));
  }
  context().print(fmt::format("Batch {}: Invalid loss, terminating training\n", batch));
}

}  // namespace meshtrain
