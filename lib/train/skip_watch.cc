#include "train/skip_watch.h"

#include <fmt/format.h>

#include "tensor/host_tensor.h"

namespace meshtrain {
namespace {

constexpr const char* kSkipCode = "W503";

}  // namespace

void SkipWatch::on_train_begin(const TrainPosition& /*position*/) {
  before_ = runner_.iterations();
}

void SkipWatch::on_train_step(const TrainPosition& /*position*/, const StepRunner& /*runner*/) {
  ++steps_;
}

void SkipWatch::on_epoch_end(EpochReport& report) {
  const int64_t now = runner_.iterations();
  const int64_t skipped = steps_ - (now - before_);
  if (!has_warned_ && skipped * 2 > steps_) {
    has_warned_ = true;
    warn_(fmt::format(
        "[{}] {} of the {} steps of epoch {} changed no weight: their gradients were "
        "not finite at a loss scale that is {:.4g} now, and halves with each such step: "
        "give LossScaleOptimizer a smaller `initial_scale`",
        kSkipCode, skipped, steps_, report.epoch, runner_.read_variable(scale_path_).at(0)));
  }
  before_ = now;
  steps_ = 0;
}

}  // namespace meshtrain
