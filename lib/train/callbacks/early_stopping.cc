#include "train/callbacks/early_stopping.h"

#include "base/json.h"
#include "record/progress.h"

namespace meshtrain {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options, CallbackContext& context,
                             std::string state_name)
    : Callback(context, std::move(state_name)),
      monitor_(options, options.min_delta, context),
      patience_(options.patience),
      start_from_epoch_(options.start_from_epoch),
      verbose_(options.verbose > 0),
      restores_(options.restore_best_weights),
      baseline_(options.baseline) {}

// A run that had stopped resumes only if more patience was given to it since.
void EarlyStopping::on_train_begin(const TrainPosition& /*at*/) {
  if (stopped_epoch_ > 0 && wait_ >= patience_) {
    stops_ = true;
  } else {
    stopped_epoch_ = 0;
  }
}

void EarlyStopping::on_epoch_end(EpochReport& report) {
  const int64_t epoch = report.epoch - 1;
  const double* value = monitor_.find(
      report.logs, fmt::format("Early stopping conditioned on metric `{}` which is not available. "
                               "Available metrics are: {}",
                               monitor_.name(), log_names(report.logs)));
  if (value == nullptr || epoch < start_from_epoch_) {
    return;
  }
  if (restores_ && !has_weights_) {
    snapshot_weights();
    best_epoch_ = epoch;
  }
  ++wait_;
  if (monitor_.improves_on(*value, monitor_.best())) {
    monitor_.set_best(*value);
    best_epoch_ = epoch;
    if (restores_) {
      snapshot_weights();
    }
    if (monitor_.improves_on(*value, baseline_)) {
      wait_ = 0;
    }
    return;
  }
  if (wait_ >= patience_ && epoch > 0) {
    stopped_epoch_ = epoch;
    stops_ = true;
  }
}

std::optional<StopReport> EarlyStopping::stops_training() const {
  if (!stops_) {
    return std::nullopt;
  }
  StopReport report;
  report.by = state_name();
  report.reason = fmt::format("`{}` has not improved for {} epoch{}", monitor_.name(), wait_,
                              wait_ == 1 ? "" : "s");
  if (monitor_.best()) {
    report.best_epoch = best_epoch_ + 1;
    report.reason += fmt::format("; its best is {} in epoch {}",
                                 progress_number(*monitor_.best(), false), report.best_epoch);
  }
  report.cure = fmt::format("more `patience` than {}", patience_);
  return report;
}

void EarlyStopping::snapshot_weights() {
  context().runner.snapshot_weights(state_name());
  has_weights_ = true;
}

void EarlyStopping::on_train_end() {
  if (stopped_epoch_ > 0 && verbose_) {
    context().print(fmt::format("Epoch {}: early stopping\n", stopped_epoch_ + 1));
  }
  if (restores_ && has_weights_) {
    if (verbose_) {
      context().print(fmt::format("Restoring model weights from the end of the best epoch: {}.\n",
                                  best_epoch_ + 1));
    }
    context().runner.restore_snapshot(state_name());
  }
}

std::string EarlyStopping::save_state() const {
  nlohmann::json state = {{"best_epoch", best_epoch_},
                          {"has_weights", has_weights_},
                          {"stopped_epoch", stopped_epoch_},
                          {"wait", wait_}};
  monitor_.save(state);
  return json_text(state);
}

void EarlyStopping::load_state(const std::string& json) {
  const nlohmann::json state = parse_json(json);
  if (!monitor_.load(state)) {
    return;  // it counts from the beginning
  }
  best_epoch_ = state.at("best_epoch");
  has_weights_ = state.at("has_weights").get<bool>() && restores_;
  stopped_epoch_ = state.at("stopped_epoch");
  wait_ = state.at("wait");
}

void EarlyStopping::forget_model() {
  monitor_.forget_best();
  wait_ = stopped_epoch_ = best_epoch_ = 0;
  has_weights_ = false;
}

}  // namespace meshtrain
