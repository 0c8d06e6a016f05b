#include "train/callbacks/terminate_on_nan.h"

#include <fmt/format.h>

#include "base/text.h"

namespace meshtrain {

void TerminateOnNaN::on_invalid_loss(int64_t batch) {
  if (raises_) {
    throw ConfigError("E501", context().config.compile.optimizer.loc,
                      fmt::format("NaN or Inf loss encountered at batch {}. Loss value: {}. "
                                  "Terminating training immediately.",
                                  batch, python_float(context().runner.last_loss())));
  }
  context().print(fmt::format("Batch {}: Invalid loss, terminating training\n", batch));
}

}  // namespace meshtrain
