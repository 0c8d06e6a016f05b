#include "train/callbacks/reduce_lr_on_plateau.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace meshtrain {

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options,
                                     CallbackContext& context, std::string state_name)
    : Callback(context, std::move(state_name)),
      monitor_(options, options.min_delta, context),
      factor_(options.factor),
      min_lr_(options.min_lr),
      patience_(options.patience),
      cooldown_(options.cooldown),
      verbose_(options.verbose > 0) {}

void ReduceLROnPlateau::on_epoch_end(EpochReport& report) {
  Logs& logs = report.logs;
  set_log(logs, "learning_rate", context().runner.learning_rate());
  const double* value = monitor_.find(
      logs, fmt::format("Learning rate reduction is conditioned on metric `{}` which is not "
                        "available. Available metrics are: {}.",
                        monitor_.name(), log_names(logs)));
  if (value == nullptr) {
    return;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    wait_ = 0;
  }
  if (monitor_.improves_on(*value, monitor_.best())) {
    monitor_.set_best(*value);
    wait_ = 0;
  } else if (cooldown_left_ == 0) {
    ++wait_;
    if (wait_ >= patience_ && reduce(report.epoch - 1)) {
      cooldown_left_ = cooldown_;
      wait_ = 0;
    }
  }
}

bool ReduceLROnPlateau::reduce(int64_t epoch) {
  const double old_rate = context().runner.learning_rate();
  if (old_rate <= static_cast<double>(static_cast<float>(min_lr_))) {
    return false;
  }
  const double rate = std::max(old_rate * factor_, min_lr_);
  context().runner.set_learning_rate(rate);
  if (verbose_) {
    context().print(fmt::format("\nEpoch {}: ReduceLROnPlateau reducing learning rate to {}.\n",
                                epoch + 1, python_float(rate)));
  }
  return true;
}

std::string ReduceLROnPlateau::save_state() const {
  nlohmann::json state = {{"cooldown", cooldown_left_}, {"wait", wait_}};
  monitor_.save(state);
  return json_text(state);
}

void ReduceLROnPlateau::load_state(const std::string& json) {
  const nlohmann::json state = parse_json(json);
  if (!monitor_.load(state)) {
    return;  // it counts from the beginning
  }
  cooldown_left_ = state.at("cooldown");
  wait_ = state.at("wait");
}

void ReduceLROnPlateau::forget_model() {
  monitor_.forget_best();
  wait_ = cooldown_left_ = 0;
}

}  // namespace meshtrain
