#include "train/skip_watch.h"

#include <fmt/format.h>

#include "tensor/host_tensor.h"

namespace meshtrain {
namespace {

constexpr const char* kSkipCode = "W503";

}  // namespace

void SkipWatch::on_train_begin(const TrainPosition& position) {
  before_ = runner_.iterations();
  is_resumed_ = position.step > 0;
  begins_within_epoch_ = position.batch > 0;
}

void SkipWatch::on_train_step(const TrainPosition& /*position*/, const StepRunner& /*runner*/) {
  ++steps_;
}

void SkipWatch::on_epoch_end(EpochReport& report) {
  const int64_t now = runner_.iterations();
  const int64_t skipped = steps_ - (now - before_);
  if (!has_warned_ && skipped * 2 > steps_) {
    has_warned_ = true;
    // A resumed run takes the scale from its checkpoint, whatever `initial_scale` says.
    warn_(fmt::format(
        "[{}] {} of the {} steps of epoch {}{} changed no weight: their gradients were "
        "not finite. The loss scale is {:.4g} now, and halves with each such step: {}",
        kSkipCode, skipped, steps_, report.epoch, begins_within_epoch_ ? " since the resume" : "",
        runner_.read_variable(scale_path_).at(0),
        is_resumed_ ? "it comes from the checkpoint; a new run can begin with a smaller "
                      "`initial_scale` of LossScaleOptimizer"
                    : "give LossScaleOptimizer a smaller `initial_scale`"));
  }
  begins_within_epoch_ = false;
  before_ = now;
  steps_ = 0;
}

}  // namespace meshtrain
