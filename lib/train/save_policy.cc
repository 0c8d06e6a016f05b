#include "train/save_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/diagnostic.h"

namespace meshtrain {
namespace {

constexpr int kMaxFailures = 3;  // in a row

bool is_multiple(int64_t count, const Interval& interval, Interval::Unit unit) {
  return interval.unit == unit && std::fmod(static_cast<double>(count), interval.count) == 0;
}

}  // namespace

MonitoredLog monitored_log(
    const Config& config,
    const std::function<std::optional<bool>(const std::string&)>& larger_is_better) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  MonitoredLog log{.name = checkpoint.monitor};
  if (log.name.empty() && config.validates()) {
    log.name = "val_loss";
  }
  if (checkpoint.mode != MonitorMode::kAuto || log.name.empty()) {
    log.larger_is_better = checkpoint.mode == MonitorMode::kMax;
    return log;
  }
  const std::optional<bool> larger = larger_is_better(log.name);
  if (!larger) {
    throw ConfigError("E113", checkpoint.monitor.loc,
                      fmt::format("`monitor: {}` is no loss and no metric of this model", log.name))
        .help("name one of `compile.metrics`, with val_ before it for the validation data");
  }
  log.larger_is_better = *larger;
  return log;
}

SavePolicy::SavePolicy(const Config& config, MonitoredLog monitored, double started_at)
    : config_(config.checkpoint),
      every_(config.checkpoint.every.value),
      max_time_(config.run.max_time),
      started_at_(started_at),
      last_epoch_(config.fit.epochs),
      monitored_(std::move(monitored)) {}

bool SavePolicy::is_kept(const TrainPosition& at) const {
  return is_multiple(at.step, config_.keep_every, Interval::Unit::kSteps) ||
         (at.batch == 0 && is_multiple(at.epoch, config_.keep_every, Interval::Unit::kEpochs));
}

void SavePolicy::begin(double now) {
  last_step_ = last_save_ended_ = now;
}

void SavePolicy::end_step(int64_t step, double now) {
  longest_step_ = std::max(longest_step_, now - last_step_);
  last_step_ = now;
  is_due_ = is_due_ || is_multiple(step, every_, Interval::Unit::kSteps) ||
            (every_.unit == Interval::Unit::kSeconds && now - last_save_ended_ >= every_.count);
}

void SavePolicy::end_epoch(int64_t epochs, const Logs& logs) {
  for (const auto& [name, value] : logs) {
    const bool is_better =
        best_.step < 0 || (monitored_.larger_is_better ? value > best_.value : value < best_.value);
    if (name == monitored_.name && !std::isnan(value) && is_better) {
      best_.value = value;
      is_new_best_ = true;
    }
  }
  is_due_ = is_due_ || is_multiple(epochs, every_, Interval::Unit::kEpochs);
}

bool SavePolicy::mark_best(int64_t step) {
  if (!std::exchange(is_new_best_, false)) {
    return false;
  }
  best_.step = step;
  if (step == last_saved_) {  // during the validation that found it the best
    saved_best_ = best_;
  }
  return true;
}

void SavePolicy::end_save(const TrainState& state, bool is_saved, double now, double seconds) {
  const int64_t step = state.position.step;
  last_save_ended_ = now;
  save_seconds_ = std::max(save_seconds_, seconds);
  if (!is_saved) {
    ++failures_;
    if (best_.step == step) {  // the best one is a checkpoint that exists
      best_.step = saved_best_.step;
      best_.value = is_new_best_ ? best_.value : saved_best_.value;
    }
    return;
  }
  failures_ = 0;
  last_saved_ = step;
  if (is_kept(state.position)) {
    pinned_.push_back(step);
  }
  if (state.best_step == step) {
    saved_best_ = {state.best, step};
  }
}

int64_t SavePolicy::steps_until_due(int64_t step) const {
  if (every_.unit != Interval::Unit::kSteps) {
    return std::numeric_limits<int64_t>::max();
  }
  const int64_t count = std::max<int64_t>(static_cast<int64_t>(every_.count), 1);
  return count - step % count;
}

bool SavePolicy::take_step_save() {
  const bool saves = is_due();
  is_due_ = is_requested_ = false;
  return saves;
}

std::optional<SavePolicy::WhenBusy> SavePolicy::take_epoch_save(int64_t epochs, bool is_kept) {
  const bool must_save = is_requested_ || is_new_best_ || epochs >= last_epoch_;
  const bool saves = is_due() || (must_save && !never_saves());
  is_due_ = is_requested_ = false;
  if (!saves) {
    return std::nullopt;
  }
  // Epochs of milliseconds need not all be saved unless the config says so.
  return must_save || is_kept || config_.every.loc ? WhenBusy::kWait : WhenBusy::kSkip;
}

bool SavePolicy::saves_at_end(int64_t step) const {
  return !never_saves() && step > 0 && last_saved_ != step;
}

bool SavePolicy::must_stop(double now, int signal) const {
  const double margin = 2 * save_seconds_ + 2 * longest_step_;
  return signal != 0 || (max_time_ > 0 && now - started_at_ + margin >= max_time_);
}

std::string SavePolicy::limit_text() const {
  return config_.on_error == SaveFailure::kStop
             ? ""
             : fmt::format("; {} saves in a row failed, which is the limit", kMaxFailures);
}

bool SavePolicy::gives_up() const {
  return failures_ >= (config_.on_error == SaveFailure::kStop ? 1 : kMaxFailures);
}

std::vector<int64_t> SavePolicy::pinned() const {
  std::vector<int64_t> steps = pinned_;
  steps.insert(steps.end(), {best_.step, saved_best_.step, resumed_from_});
  return steps;
}

}  // namespace meshtrain
