#include "train/loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "record/progress.h"

namespace meshtrain {
namespace {

constexpr const char* kCode = "W501";
constexpr int64_t kFlatEpochs = 3;
constexpr double kFlat = 1e-4;     // relative: less than training changes by in any epoch
constexpr double kNothing = 1e-3;  // a loss below this has nothing left to learn
constexpr double kDiverged = 10;   // times the first loss

}  // namespace

void LossWatch::on_epoch_end(EpochReport& report) {
  const auto found = std::find_if(report.logs.begin(), report.logs.end(),
                                  [](const auto& log) { return log.first == "loss"; });
  if (found == report.logs.end() || has_warned_) {
    return;
  }
  const double loss = found->second;
  if (report.epoch == 1) {
    first_ = loss;
    judges_ = std::isfinite(loss) && std::abs(loss) > kNothing;
    return;
  }
  if (!judges_) {
    return;
  }
  largest_ = std::max(largest_, std::abs(loss - first_) / std::abs(first_));
  const std::string from = progress_number(first_, false), now = progress_number(loss, false);
  if (report.epoch == kFlatEpochs && largest_ < kFlat) {
    has_warned_ = true;
    warn_(
        fmt::format("[{}] the loss is {} since epoch 1 and does not change: look at the "
                    "learning rate, the labels, and layers that end in 0 for every sample",
                    kCode, now));
  } else if (first_ > 0 && loss > kDiverged * first_) {
    has_warned_ = true;
    warn_(
        fmt::format("[{}] the loss grew from {} in epoch 1 to {}: try a smaller learning rate, "
                    "or clipping (clipnorm)",
                    kCode, from, now));
  }
}

}  // namespace meshtrain
