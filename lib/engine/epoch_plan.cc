#include "engine/epoch_plan.h"

#include <algorithm>

#include "base/diagnostic.h"

namespace meshtrain {

int64_t count_batches(int64_t num_samples, int64_t batch_size, bool drop_last) {
  return drop_last ? num_samples / batch_size : (num_samples + batch_size - 1) / batch_size;
}

EpochPlan plan_epoch(const FitConfig& fit, int64_t num_batches, int64_t epoch) {
  EpochPlan plan;
  const int64_t wanted = fit.steps_per_epoch;
  if (wanted > 0) {
    const int64_t epochs_per_pass = (num_batches + wanted - 1) / wanted;
    plan.pass = epoch / epochs_per_pass;
    plan.first_batch = (epoch % epochs_per_pass) * wanted;
    plan.steps = std::min(wanted, num_batches - plan.first_batch);
    plan.target = wanted;
  } else {
    plan.pass = epoch;
    plan.steps = num_batches;
    plan.target = num_batches;
  }
  if (fit.limit_steps > 0) {
    plan.steps = std::min<int64_t>(plan.steps, fit.limit_steps);
    plan.target = std::min<int64_t>(plan.target, fit.limit_steps);
  }
  plan.ran_out = plan.steps < plan.target;
  return plan;
}

int64_t validation_batch_size(const FitConfig& fit) {
  return fit.validation_batch_size > 0 ? fit.validation_batch_size : fit.batch_size;
}

void check_batches(const Config& config, const Dataset& train) {
  const FitConfig& fit = config.fit;
  const bool drop_last = config.data.remainder == Remainder::kDrop;
  if (count_batches(train.num_samples, fit.batch_size, drop_last) == 0) {
    throw ConfigError(
        "E316", train.loc,
        fmt::format("{} samples are fewer than one batch of {}, and `remainder: drop` drops "
                    "incomplete batches",
                    train.num_samples, fit.batch_size.value))
        .help("a smaller fit.batch_size, or `remainder: keep`");
  }
}

void warn_of_batch(const FitConfig& fit, const Dataset& train, Diagnostics& warnings) {
  if (fit.batch_size.loc && fit.batch_size > train.num_samples) {
    warnings
        .warning("W316", fit.batch_size.loc,
                 fmt::format("a batch of {} is larger than the data: each epoch is one step of {} "
                             "samples",
                             fit.batch_size.value, train.num_samples))
        .help(fmt::format("write `batch_size: {}` or less", train.num_samples));
  }
}

}  // namespace meshtrain
