#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "data/checks.h"
#include "engine/state_batches.h"

namespace meshtrain {

Trainer::Trainer(StepRunner& runner, const Config& config, Clock now)
    : runner_(runner), config_(config), now_(std::move(now)) {}

void Trainer::fit(const Dataset& train, const Dataset* validation) {
  const FitConfig& fit = config_.fit;
  check_batches(config_, train);
  const int64_t num_batches =
      count_batches(train.num_samples, fit.batch_size, config_.data.remainder == Remainder::kDrop);
  BatchReader batches(train, runner_.cache_on_device(train) ? 0 : config_.data.prefetch.value, now_,
                      [this](int64_t size) { return runner_.local_rows(true, size); });
  runner_.begin_compile(train, true);
  if (validation != nullptr) {
    runner_.cache_on_device(*validation);
    runner_.begin_compile(*validation, false);
  }
  TrainPosition at = start_.value_or(TrainPosition{.epoch = fit.initial_epoch});
  in_flight_ = 0;
  coordinator_->poll(Coordinator::Pace::kNow);  // hooks begin at rank 0's time
  for (Hook* hook : hooks_) {
    hook->on_train_begin(at);
  }
  if (!has_saver_) {
    coordinator_->throw_if_stopped("setting up");
  }
  const int64_t first_epoch = at.epoch;
  while (at.epoch < fit.epochs && !stop_report()) {
    const EpochPlan plan = plan_epoch(fit, num_batches, at.epoch);
    const double start = now_();
    EpochReport report = train_epoch(train, batches, plan, at);
    if (validation && validates_after(fit, at.epoch + 1)) {
      validate(*validation, at, report);
    }
    report.seconds = now_() - start;
    for (Hook* hook : hooks_) {
      hook->on_epoch_end(report);
    }
    if (plan.ran_out) {  // at the end: a run that is resumed into the validation comes here once
      warn_of_end(plan, at.epoch + 1);
    }
    at = {.step = at.step, .epoch = at.epoch + 1};
    for (Hook* hook : hooks_) {
      hook->after_hooks(at);
    }
    for (Hook* hook : hooks_) {
      hook->on_epoch_boundary(at, report.logs);
    }
  }
  if (std::optional<StopReport> stop = at.epoch < fit.epochs ? stop_report() : std::nullopt) {
    stop->epoch = at.epoch;
    stop->epochs = fit.epochs;
    stop->was_stopped = at.epoch == first_epoch;
    for (Hook* hook : hooks_) {
      hook->on_stop(*stop);
    }
  }
  for (Hook* hook : hooks_) {
    hook->on_fit_end(at);
  }
  for (Hook* hook : hooks_) {
    hook->before_finalize();
  }
  if (fit.epochs > 0) {
    runner_.finalize_weights();
  }
  for (Hook* hook : hooks_) {
    hook->on_train_end();
  }
}

void Trainer::warn_of_end(const EpochPlan& plan, int64_t epoch) const {
  for (Hook* hook : hooks_) {
    hook->on_warning(
        fmt::format("epoch {} ran out of data after {} of {} steps (fit.steps_per_epoch); the "
                    "next one starts from the beginning",
                    epoch, plan.steps, plan.target));
  }
}

std::optional<StopReport> Trainer::stop_report() const {
  for (const Hook* hook : hooks_) {
    if (std::optional<StopReport> report = hook->stops_training()) {
      return report;
    }
  }
  return std::nullopt;
}

EpochReport Trainer::train_epoch(const Dataset& train, BatchReader& batches, const EpochPlan& plan,
                                 TrainPosition& at) {
  const double start = now_();
  const int64_t epoch = at.epoch + 1, done = at.batch;
  batches.start(config_.data.shuffle ? EpochOrder(train.num_samples, config_.seed, plan.pass)
                                     : EpochOrder(train.num_samples),
                config_.fit.batch_size, plan.first_batch + at.batch, plan.first_batch + plan.steps,
                plan.pass);
  if (at.batch == 0) {
    runner_.reset_metrics();
  }
  for (Hook* hook : hooks_) {
    hook->on_epoch_begin({at.epoch, config_.fit.epochs, plan.target, at.batch > 0, at.batch});
  }
  while (!at.epoch_trained && at.batch < plan.steps) {
    train_together(batches, steps_together(train, plan, at), plan, at);
  }
  EpochReport report{.epoch = epoch, .epochs = config_.fit.epochs, .steps = plan.steps};
  report.timed_steps = at.epoch_trained ? at.timed_steps : plan.steps - done;
  report.train_seconds = at.epoch_trained ? at.train_seconds : now_() - start;
  report.logs = at.epoch_trained ? at.logs : runner_.logs();
  report.lists = at.epoch_trained ? at.lists : runner_.log_lists();
  report.scheduled_rate = runner_.scheduled_rate();
  return report;
}

namespace {

// The position so many steps of an epoch before `at`.
TrainPosition before(const TrainPosition& at, int64_t steps) {
  return {.step = at.step - steps, .epoch = at.epoch, .batch = at.batch - steps};
}

}  // namespace

// Steps that may be begun before any hook needs the model as it is between two of them.
int64_t Trainer::steps_together(const Dataset& train, const EpochPlan& plan,
                                const TrainPosition& at) const {
  const int64_t size = config_.fit.batch_size;
  const int64_t full =
      train.num_samples / size - plan.first_batch;  // the last batch may be smaller
  int64_t steps = std::min(plan.steps, full) - at.batch;
  if (steps <= 1) {
    return 1;
  }
  for (const Hook* hook : hooks_) {
    steps = std::min(steps, hook->steps_until_sync(before(at, in_flight_)) - in_flight_);
  }
  return steps <= 1 ? 1 : std::min(steps, runner_.steps_at_once(size));
}

void Trainer::train_together(BatchReader& batches, int64_t count, const EpochPlan& plan,
                             TrainPosition& at) {
  const auto next = [&] {
    coordinator_->progress(at, "data");
    try {
      const Batch batch = batches.next();
      coordinator_->progress(at, "step");
      return batch;
    } catch (...) {
      retire_steps(at, 0);
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
  in_flight_ += count;
  retire_steps(at, runner_.is_async() ? count : 0);
  const bool last = at.batch == plan.steps;
  bool syncs = last || !has_saver_;
  std::vector<Hook*> waiting;
  for (Hook* hook : hooks_) {
    if (hook->needs_sync(at, last)) {
      waiting.push_back(hook);
    }
    syncs = syncs || hook->steps_until_sync(before(at, in_flight_)) <= in_flight_;
  }
  if (syncs || !waiting.empty()) {
    retire_steps(at, 0);
  }
  for (Hook* hook : hooks_) {
    hook->after_hooks(at);
  }
  if (!has_saver_) {
    coordinator_->throw_if_stopped(
        fmt::format("step {} of epoch {}; weights were not saved", at.batch, at.epoch + 1));
  }
  for (Hook* hook : waiting) {
    hook->on_sync(at, last);
  }
}

void Trainer::retire_steps(const TrainPosition& at, int64_t in_flight) {
  while (in_flight_ > in_flight) {
    --in_flight_;
    runner_.select_step(in_flight_);
    const TrainPosition done = before(at, in_flight_);
    for (Hook* hook : hooks_) {
      hook->on_train_step(done, runner_);
    }
    coordinator_->loss(done.step, runner_);
    check_loss(done.epoch + 1, done.batch);
  }
}

void Trainer::validate(const Dataset& validation, const TrainPosition& at, EpochReport& report) {
  const FitConfig& fit = config_.fit;
  PassPosition position = {.pass = Pass::kValidation, .steps = fit.validation_steps, .at = at};
  position.at.epoch_trained = true;
  position.at.logs = report.logs;
  position.at.lists = report.lists;
  position.at.timed_steps = report.timed_steps;
  position.at.train_seconds = report.train_seconds;
  coordinator_->progress(position.at, "validation");
  const EvaluateReport found =
      run_tests(validation, validation_batch_size(fit), std::move(position));
  const Logs logs = validation_logs(found.logs);
  report.logs.insert(report.logs.end(), logs.begin(), logs.end());
  for (const auto& [name, values] : found.lists) {
    report.lists["val_" + name] = values;
  }
}

void Trainer::validate_within_epoch(const Dataset& validation, const TrainPosition& at,
                                    int64_t steps) {
  const FitConfig& fit = config_.fit;
  coordinator_->progress(at, "validation");
  run_tests(validation, validation_batch_size(fit),
            {.pass = Pass::kValidation,
             .steps = steps > 0 ? steps : fit.validation_steps.value,
             .at = at});
}

Logs Trainer::evaluate(const Dataset& dataset, int64_t batch_size, int64_t steps) {
  return run_tests(dataset, batch_size, {.pass = Pass::kEvaluation, .steps = steps}).logs;
}

EvaluateReport Trainer::run_tests(const Dataset& dataset, int64_t batch_size,
                                  PassPosition position) {
  const int64_t all = count_batches(dataset.num_samples, batch_size, drops_last_test(config_));
  const double start = now_();
  position.steps = position.steps > 0 ? std::min(position.steps, all) : all;
  for (Hook* hook : hooks_) {
    hook->on_pass_begin(position);
  }
  BatchReader batches(dataset, runner_.cache_on_device(dataset) ? 0 : config_.data.prefetch.value,
                      now_, [this](int64_t size) { return runner_.local_rows(false, size); });
  batches.start(EpochOrder(dataset.num_samples), batch_size, 0, position.steps);
  runner_.reset_metrics();
  while (position.step < position.steps) {
    runner_.test_step(batches.next());
    ++position.step;
    end_pass_step(position);
  }
  const EvaluateReport report = {.steps = position.steps,
                                 .seconds = now_() - start,
                                 .logs = runner_.logs(),
                                 .lists = runner_.log_lists()};
  for (Hook* hook : hooks_) {
    hook->on_pass_end(position, report);
  }
  return report;
}

void Trainer::end_pass_step(const PassPosition& position) {
  for (Hook* hook : hooks_) {
    hook->on_pass_step(position, runner_);
  }
  if (has_saver_) {
    return;
  }
  constexpr const char* kPasses[] = {"step {} of the validation; weights were not saved",
                                     "step {} of the evaluation", "step {} of the prediction"};
  coordinator_->throw_if_stopped(
      fmt::format(fmt::runtime(kPasses[static_cast<size_t>(position.pass)]), position.step));
}

std::vector<HostTensor> Trainer::predict(const Dataset& dataset, int64_t batch_size) {
  PassPosition position = {.pass = Pass::kPrediction};
  position.steps = count_batches(dataset.num_samples, batch_size, false);
  BatchReader batches(dataset, config_.data.prefetch, now_,
                      [this](int64_t size) { return runner_.local_rows(false, size); });
  batches.start(EpochOrder(dataset.num_samples), batch_size, 0, position.steps);
  for (Hook* hook : hooks_) {
    hook->on_pass_begin(position);
  }
  std::vector<HostTensor> all;
  int64_t done = 0;
  while (position.step < position.steps) {
    const Batch batch = batches.next();
    const std::vector<HostTensor> outputs = runner_.predict_step(batch);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (position.step == 0) {
        Shape shape = outputs[i].shape();
        shape[0] = dataset.num_samples;
        all.emplace_back(outputs[i].dtype(), shape);
      }
      const size_t row_bytes = outputs[i].num_bytes() / batch.rows.size();
      std::memcpy(all[i].bytes() + static_cast<size_t>(done) * row_bytes, outputs[i].bytes(),
                  outputs[i].num_bytes());
    }
    done += static_cast<int64_t>(batch.rows.size());
    ++position.step;
    end_pass_step(position);
  }
  for (Hook* hook : hooks_) {
    hook->on_pass_end(position, {.steps = position.steps});
  }
  return all;
}

bool validates_after(const FitConfig& fit, int64_t epoch) {
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
