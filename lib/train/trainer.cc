#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "data/checks.h"

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

Trainer::Trainer(StepRunner& runner, const Config& config, Clock now)
    : runner_(runner), config_(config), now_(std::move(now)) {}

void check_batches(const Config& config, const Dataset& train) {
  const FitConfig& fit = config.fit;
  const bool drop_last = config.data.remainder == Remainder::kDrop;
  if (fit.batch_size.loc && fit.batch_size.value > train.num_samples) {
    throw ConfigError("E316", fit.batch_size.loc,
                      fmt::format("a batch of {} is larger than the data: {} samples",
                                  fit.batch_size.value, train.num_samples))
        .help(fmt::format("write `batch_size: {}` or less", train.num_samples));
  }
  if (count_batches(train.num_samples, fit.batch_size, drop_last) == 0) {
    throw ConfigError(
        "E316", train.loc,
        fmt::format("{} samples are fewer than one batch of {}, and `remainder: drop` drops "
                    "incomplete batches",
                    train.num_samples, fit.batch_size.value))
        .help("a smaller fit.batch_size, or `remainder: keep`");
  }
}

void Trainer::fit(const Dataset& train, const Dataset* validation) {
  const FitConfig& fit = config_.fit;
  check_batches(config_, train);
  const int64_t num_batches =
      count_batches(train.num_samples, fit.batch_size, config_.data.remainder == Remainder::kDrop);
  BatchReader batches(train, runner_.keep(train) ? 0 : config_.data.prefetch.value, now_,
                      [this](int64_t size) { return runner_.part_of_batch(true, size); });
  TrainPosition at = start_.value_or(TrainPosition{.epoch = fit.initial_epoch});
  unseen_ = 0;
  agreement_->look(Agreement::Pace::kNow);  // callbacks begin at rank 0's time
  if (callbacks_ != nullptr) {
    callbacks_->on_train_begin(at);
  }
  if (control_ != nullptr) {
    control_->on_fit_begin(at);
  } else {
    agreement_->throw_if_stopped("setting up");
  }
  while (at.epoch < fit.epochs && (callbacks_ == nullptr || !callbacks_->stop_training())) {
    const EpochPlan plan = plan_epoch(fit, num_batches, at.epoch);
    const double start = now_();
    EpochReport report = train_epoch(train, batches, plan, at);
    if (validation && validates_after(at.epoch + 1)) {
      validate(*validation, at, report);
    }
    report.seconds = now_() - start;
    if (callbacks_ != nullptr) {
      callbacks_->on_epoch_end(at.epoch, report.logs);
    }
    for (TrainObserver* observer : observers_) {
      observer->on_epoch_end(report);
    }
    at = {.step = at.step, .epoch = at.epoch + 1};
    save_states(at);
    if (control_ != nullptr) {
      control_->after_epoch(at, report.logs);
    }
  }
  if (control_ != nullptr) {
    control_->on_fit_end(at);
  }
  if (callbacks_ != nullptr) {
    callbacks_->on_epochs_end();
  }
  if (fit.epochs > 0) {
    runner_.finalize_weights();
  }
  if (callbacks_ != nullptr) {
    callbacks_->on_train_end();
  }
}

void Trainer::save_states(const TrainPosition& at) {
  if (callbacks_ == nullptr) {
    return;
  }
  for (const CallbackContext::StateSave& save : callbacks_->take_state_saves()) {
    MESHTRAIN_CHECK(control_ != nullptr, "nobody can save the state to {}", save.path);
    save.done(control_->save_to(save.path, at));
  }
}

EpochReport Trainer::train_epoch(const Dataset& train, BatchReader& batches, const EpochPlan& plan,
                                 TrainPosition& at) {
  const double start = now_();
  const int64_t epoch = at.epoch + 1;
  batches.start(config_.data.shuffle ? EpochOrder(train.num_samples, config_.seed, plan.pass)
                                     : EpochOrder(train.num_samples),
                config_.fit.batch_size, plan.first_batch + at.batch, plan.first_batch + plan.steps);
  if (at.batch == 0) {
    runner_.reset_metrics();
  }
  if (callbacks_ != nullptr && at.batch == 0) {
    callbacks_->on_epoch_begin(at.epoch);
  }
  for (TrainObserver* observer : observers_) {
    observer->on_epoch_begin(epoch, config_.fit.epochs, plan.target);
  }
  while (!at.epoch_trained && at.batch < plan.steps) {
    train_together(batches, steps_together(train, plan, at), plan, at);
  }
  if (plan.ran_out) {
    for (TrainObserver* observer : observers_) {
      observer->on_warning(
          fmt::format("epoch {} ran out of data after {} of {} steps (fit.steps_per_epoch); the "
                      "next one starts "
                      "from the beginning",
                      epoch, plan.steps, plan.target));
    }
  }
  EpochReport report{.epoch = epoch, .epochs = config_.fit.epochs, .steps = plan.steps};
  report.train_seconds = now_() - start;
  report.logs = at.epoch_trained ? at.logs : runner_.logs();
  report.lists = at.epoch_trained ? at.lists : runner_.log_lists();
  return report;
}

// Steps that may be computed before anybody but the observers must look.
int64_t Trainer::steps_together(const Dataset& train, const EpochPlan& plan,
                                const TrainPosition& at) const {
  const int64_t size = config_.fit.batch_size;
  const int64_t full =
      train.num_samples / size - plan.first_batch;  // the last batch may be smaller
  int64_t steps = std::min(plan.steps, full) - at.batch;
  if (steps <= 1) {
    return 1;
  }
  if (callbacks_ != nullptr) {
    steps = std::min(steps, callbacks_->steps_to_turn() - unseen_);
  }
  if (control_ != nullptr) {
    steps = std::min(steps, control_->steps_to_turn(at));
  }
  return steps <= 1 ? 1 : std::min(steps, runner_.steps_at_once(size));
}

void Trainer::train_together(BatchReader& batches, int64_t count, const EpochPlan& plan,
                             TrainPosition& at) {
  const auto next = [&] {
    agreement_->progress(at, "data");
    try {
      const Batch batch = batches.next();
      agreement_->progress(at, "step");
      return batch;
    } catch (...) {
      see_steps(at, 0);
      throw;
    }
  };
  if (count == 1) {
    runner_.train_step(next());
  } else {
    runner_.train_steps(count, next);
  }
  at.batch += count;
  at.step += count;
  unseen_ += count;
  see_steps(at, runner_.runs_ahead() ? count : 0);
  const bool last = at.batch == plan.steps;
  const bool control_turn = control_ == nullptr || control_->wants_turn(at, last);
  if (last || control_turn || (callbacks_ != nullptr && callbacks_->steps_to_turn() <= unseen_)) {
    see_steps(at, 0);
  }
  save_states(at);
  if (control_ == nullptr) {
    agreement_->throw_if_stopped(
        fmt::format("step {} of epoch {}; weights were not saved", at.batch, at.epoch + 1));
  } else if (control_turn) {
    control_->after_step(at, last);
  }
}

void Trainer::see_steps(const TrainPosition& at, int64_t but) {
  const int64_t epoch = at.epoch + 1;
  while (unseen_ > but) {
    runner_.show_step(unseen_ - 1);
    const int64_t batch = at.batch - unseen_;
    if (callbacks_ != nullptr && std::isfinite(runner_.last_loss())) {
      callbacks_->on_train_batch_end(at.epoch, batch);
    } else if (callbacks_ != nullptr) {
      callbacks_->on_invalid_loss(batch);
    }
    --unseen_;
    agreement_->loss(at.step - unseen_, runner_);
    for (TrainObserver* observer : observers_) {
      observer->on_train_step(epoch, batch + 1, runner_);
    }
    check_loss(epoch, batch + 1);
  }
}

void Trainer::validate(const Dataset& validation, const TrainPosition& at, EpochReport& report) {
  const FitConfig& fit = config_.fit;
  const int64_t batch_size =
      fit.validation_batch_size > 0 ? fit.validation_batch_size : fit.batch_size;
  TrainPosition trained = at;
  trained.epoch_trained = true;
  trained.logs = report.logs;
  trained.lists = report.lists;
  agreement_->progress(trained, "validation");
  if (callbacks_ != nullptr) {
    callbacks_->on_test_begin();
  }
  run_tests(validation, batch_size, fit.validation_steps, [&](int64_t step) {
    if (control_ != nullptr) {
      control_->during_validation(trained);
    } else {
      agreement_->throw_if_stopped(
          fmt::format("step {} of the validation; weights were not saved", step));
    }
  });
  const Logs logs = runner_.logs();
  if (callbacks_ != nullptr) {
    callbacks_->on_test_end(logs);
  }
  for (const auto& [name, value] : logs) {
    report.logs.emplace_back("val_" + name, value);
  }
  for (const auto& [name, values] : runner_.log_lists()) {
    report.lists["val_" + name] = values;
  }
}

Logs Trainer::evaluate(const Dataset& dataset, int64_t batch_size, int64_t steps) {
  const int64_t all = count_batches(dataset.num_samples, batch_size, false);
  const double start = now_();
  for (TrainObserver* observer : observers_) {
    observer->on_evaluate_begin(steps > 0 ? std::min(steps, all) : all);
  }
  EvaluateReport report;
  report.steps = run_tests(dataset, batch_size, steps, [this](int64_t step) {
    for (TrainObserver* observer : observers_) {
      observer->on_evaluate_step(step, runner_);
    }
    if (control_ != nullptr) {
      control_->during_evaluation();
    } else {
      agreement_->throw_if_stopped(fmt::format("step {} of the evaluation", step));
    }
  });
  report.seconds = now_() - start;
  report.logs = runner_.logs();
  report.lists = runner_.log_lists();
  for (TrainObserver* observer : observers_) {
    observer->on_evaluate_end(report);
  }
  return report.logs;
}

int64_t Trainer::run_tests(const Dataset& dataset, int64_t batch_size, int64_t steps,
                           const std::function<void(int64_t)>& after_step) {
  const int64_t all = count_batches(dataset.num_samples, batch_size, false);
  const int64_t count = steps > 0 ? std::min(steps, all) : all;
  BatchReader batches(dataset, runner_.keep(dataset) ? 0 : config_.data.prefetch.value, now_,
                      [this](int64_t size) { return runner_.part_of_batch(false, size); });
  batches.start(EpochOrder(dataset.num_samples), batch_size, 0, count);
  runner_.reset_metrics();
  for (int64_t step = 1; step <= count; ++step) {
    runner_.test_step(batches.next());
    after_step(step);
  }
  return count;
}

std::vector<HostTensor> Trainer::predict(const Dataset& dataset, int64_t batch_size) {
  const int64_t steps = count_batches(dataset.num_samples, batch_size, false);
  BatchReader batches(dataset, config_.data.prefetch, now_,
                      [this](int64_t size) { return runner_.part_of_batch(false, size); });
  batches.start(EpochOrder(dataset.num_samples), batch_size, 0, steps);
  for (TrainObserver* observer : observers_) {
    observer->on_predict_begin(steps);
  }
  std::vector<HostTensor> all;
  int64_t done = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    const Batch batch = batches.next();
    const std::vector<HostTensor> outputs = runner_.predict_step(batch);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (step == 1) {
        Shape shape = outputs[i].shape();
        shape[0] = dataset.num_samples;
        all.emplace_back(outputs[i].dtype(), shape);
      }
      const size_t row_bytes = outputs[i].num_bytes() / batch.rows.size();
      std::memcpy(all[i].bytes() + static_cast<size_t>(done) * row_bytes, outputs[i].bytes(),
                  outputs[i].num_bytes());
    }
    done += static_cast<int64_t>(batch.rows.size());
    for (TrainObserver* observer : observers_) {
      observer->on_predict_step(step);
    }
    agreement_->throw_if_stopped(fmt::format("step {} of the prediction", step));
  }
  for (TrainObserver* observer : observers_) {
    observer->on_predict_end(steps);
  }
  return all;
}

bool Trainer::validates_after(int64_t epoch) const {
  const FitConfig& fit = config_.fit;
  if (!fit.validation_epochs.empty()) {
    return std::find(fit.validation_epochs.begin(), fit.validation_epochs.end(), epoch) !=
           fit.validation_epochs.end();
  }
  return epoch % fit.validation_freq == 0;
}

void Trainer::check_loss(int64_t epoch, int64_t step) const {
  const double loss = runner_.last_loss();
  if (std::isfinite(loss)) {
    return;
  }
  std::string lost;
  for (const std::string& path : runner_.weight_paths()) {  // all: reading is collective
    const bool is_lost = first_nonfinite(runner_.read_variable(path)) >= 0;
    lost = lost.empty() && is_lost ? path : lost;
  }
  throw ConfigError(
      "E501", config_.compile.optimizer.loc,
      fmt::format("the loss is {} at step {} of epoch {}; {}", format_shortest(loss), step, epoch,
                  lost.empty() ? "all weights are finite"
                               : fmt::format("`{}` is the first weight that is not finite", lost)))
      .help("a smaller learning rate, or clipping (clipnorm, global_clipnorm) on the optimizer");
}

}  // namespace meshtrain
