#include "train/checkpointer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/memory.h"
#include "base/text.h"
#include "engine/signals.h"
#include "record/progress.h"
#include "train/callbacks/monitor.h"

namespace meshtrain {

Checkpointer::Checkpointer(Engine& engine, const Config& config, CheckpointerOptions options)
    : engine_(engine),
      config_(config),
      options_(std::move(options)),
      alone_({}, options_.now),
      coordinator_(options_.coordinator == nullptr ? alone_ : *options_.coordinator),
      checkpoints_(engine, config.checkpoint, options_.run_dir, std::move(options_.notes),
                   coordinator_, options_.warn),
      policy_(config,
              monitored_log(config,
                            std::bind_front(larger_is_better, std::cref(engine.setup().graphs()))),
              options_.started_at),
      replicas_(coordinator_, config.run.check_replicas),
      saver_(engine.store(), coordinator_,
             {.folder = checkpoints_.folder(),
              .async = config.checkpoint.async,
              .memory = config.checkpoint.memory,
              .sees_folder = options_.sees_folder,
              .now = options_.now,
              .warn = options_.warn,
              .before_commit = options_.before_commit}) {
  checkpoints_.check_room(saver_.num_bytes());
}

void Checkpointer::resume(const CheckpointReader& reader, bool own) {
  checkpoints_.resume(reader, own, policy_);
  coordinator_.set_last_checkpoint(policy_.last_saved());
}

// All processes come here at the same places. A save that all have written ends on all.
void Checkpointer::poll(Coordinator::Pace pace, uint64_t logs) {
  if (coordinator_.poll(pace, saver_.is_written(), logs)) {
    finish_save();
  }
}

void Checkpointer::report_status(const TrainPosition& at) {
  if (!coordinator_.take_report_request()) {
    return;
  }
  options_.report(fmt::format(
      "epoch {}/{}, {} {} ({} in all), {:.2f} ms/step at most, {} of memory, last checkpoint {}{}",
      at.epoch + 1, config_.fit.epochs.value, at.epoch_trained ? "validating after step" : "step",
      at.batch, at.step, policy_.longest_step() * 1e3, format_bytes(resident_memory()),
      checkpoint_name_or_none(policy_.last_saved()),
      metrics_text(at.epoch_trained ? at.logs : engine_.logs(), true)));
}

void Checkpointer::on_train_begin(const TrainPosition& at) {
  poll(Coordinator::Pace::kNow);
  policy_.begin(coordinator_.now());
  if (coordinator_.stop_signal() != 0) {  // run.max_time lets each start do a step
    stop_if_asked(at);
  }
}

int64_t Checkpointer::steps_until_sync(const TrainPosition& at) const {
  return std::min(policy_.steps_until_due(at.step), replicas_.steps_until_due(at.step));
}

bool Checkpointer::needs_sync(const TrainPosition& at, bool last) {
  poll(Coordinator::Pace::kPaced);
  const double now = coordinator_.now();
  policy_.end_step(at.step, now);
  report_status(at);
  if (coordinator_.take_checkpoint_request()) {
    policy_.request();
  }
  return replicas_.is_due(at.step) ||
         (!last && (policy_.is_due() || policy_.must_stop(now, coordinator_.stop_signal())));
}

void Checkpointer::on_sync(const TrainPosition& at, bool last) {
  if (replicas_.is_due(at.step)) {
    replicas_.compare(engine_.store(), at.step, policy_.last_saved());
  }
  if (!last) {  // after the last step the epoch's end is near, which is the better place
    stop_if_asked(at);
    if (policy_.take_step_save()) {
      save(at, SavePolicy::WhenBusy::kWait);
    }
  }
  policy_.skip_time(coordinator_.now());
}

void Checkpointer::after_hooks(const TrainPosition& at) {
  if (!options_.take_state_saves) {
    return;
  }
  for (const StateSave& request : options_.take_state_saves()) {
    request.done(save_as(request.path, at));
  }
}

void Checkpointer::on_pass_begin(const PassPosition& /*position*/) {
  pass_states_ = read_rnn_states(engine_);
}

void Checkpointer::on_pass_end(const PassPosition& /*position*/, const EvaluateReport& /*report*/) {
  pass_states_.clear();
}

void Checkpointer::on_pass_step(const PassPosition& position, const StepRunner& /*runner*/) {
  if (position.pass == Pass::kValidation) {
    poll(Coordinator::Pace::kPaced);
    report_status(position.at);
    if (position.at.epoch_trained) {  // else the metrics of the epoch are not in place
      stop_if_asked(position.at);
    }
  } else if (position.pass == Pass::kEvaluation) {
    poll(Coordinator::Pace::kPaced);
    stop_evaluation_if_asked();
  }
}

void Checkpointer::on_epoch_boundary(const TrainPosition& next, const Logs& logs) {
  policy_.end_epoch(next.epoch, logs);
  poll(Coordinator::Pace::kNow, hash_logs(logs));
  stop_if_asked(next);
  if (const auto when_busy = policy_.take_epoch_save(next.epoch, policy_.is_kept(next))) {
    save(next, *when_busy);
  }
  policy_.skip_time(coordinator_.now());
}

void Checkpointer::on_fit_end(const TrainPosition& at) {
  end_ = at;
  finish_save();
  if (policy_.saves_at_end(at.step)) {
    if (const std::string error = save_now(at); !error.empty()) {
      throw RuntimeFailure(ExitCode::kWriteFailed, "the last " + error);
    }
  }
}

void Checkpointer::stop_if_asked(const TrainPosition& at) {
  const int signal = coordinator_.stop_signal();
  if (!policy_.must_stop(coordinator_.now(), signal)) {
    return;
  }
  const std::string done = fmt::format("step {} of epoch {}", at.batch, at.epoch + 1);
  if (signal != 0 && !coordinator_.stop_saves()) {
    finish_save();
    throw_stopped(signal, done + "; weights were not saved");
  }
  save_and_stop(at,
                fmt::format("stopped by {} after {}",
                            signal != 0 ? signal_name(signal) : "run.max_time", done),
                "saved as " + checkpoints_.path(at.step));
}

// With `every: never` nothing is saved yet. A resumed run repeats what was done to the weights
// since the end of fit (averages, the best epoch's), and comes to the same end. Only more epochs
// than these would begin from other weights.
void Checkpointer::stop_evaluation_if_asked() {
  const int signal = coordinator_.stop_signal();
  if (signal == 0) {
    return;
  }
  if (!coordinator_.stop_saves()) {
    throw_stopped(signal, fmt::format("training, in the evaluation; the weights are in "
                                      "{}/weights.safetensors",
                                      options_.run_dir));
  }
  save_and_stop(end_,
                fmt::format("stopped by {} in the evaluation after training", signal_name(signal)),
                "all of the training is saved");
}

void Checkpointer::save_and_stop(const TrainPosition& at, const std::string& why,
                                 const std::string& saved) {
  write_variables(engine_, pass_states_);
  if (const std::string error = save_now(at); !error.empty()) {
    throw RuntimeFailure(ExitCode::kWriteFailed, fmt::format("{}, and {}", why, error));
  }
  throw StopRequested(ExitCode::kStopped, fmt::format("{}; {}\ngo on with: meshtrain resume {}",
                                                      why, saved, options_.run_dir));
}

void Checkpointer::save(const TrainPosition& at, SavePolicy::WhenBusy when_busy) {
  if (at.step == policy_.last_saved()) {
    if (policy_.mark_best(at.step)) {
      checkpoints_.link_best(at.step);
    }
    return;
  }
  if (saver_.is_busy() && when_busy == SavePolicy::WhenBusy::kSkip) {
    if (!std::exchange(is_skip_said_, true)) {
      options_.inform(
          fmt::format("skipped the save of epoch {}: the one before is still being written; "
                      "`checkpoint.every: 1 epoch` waits for each (said once)",
                      at.epoch));
    }
    return;
  }
  finish_save();
  const double begin = options_.now();
  policy_.mark_best(at.step);
  if (const auto save = saver_.start(checkpoints_.make_notes(at, policy_), begin)) {
    end_save(*save);
  }
}

// Returns why the step was not saved; empty when it was.
std::string Checkpointer::save_now(const TrainPosition& at) {
  save(at, SavePolicy::WhenBusy::kWait);
  finish_save();
  return policy_.last_saved() == at.step ? "" : last_error_;
}

void Checkpointer::finish_save() {
  if (const auto save = saver_.finish()) {
    end_save(*save);
  }
}

void Checkpointer::end_save(const FinishedSave& save) {
  const SaveResult& result = save.result;
  const int64_t step = save.notes.state.position.step;
  check_result(result, step, checkpoints_.folder());
  policy_.end_save(save.notes.state, result.saved, coordinator_.now(), result.seconds);
  last_error_ = result.error;
  if (!result.saved) {
    const int64_t last = policy_.last_saved();
    const std::string text =
        fmt::format("{}; {}", result.error,
                    last < 0 ? "there is no checkpoint yet"
                             : fmt::format("the last good one is {}", checkpoint_name(last)));
    if (policy_.gives_up()) {
      throw RuntimeFailure(ExitCode::kWriteFailed, text + policy_.limit_text());
    }
    return options_.warn(text + "; training continues");
  }
  coordinator_.set_last_checkpoint(step);
  // The save may end within the next epoch.
  const TrainPosition& at = save.notes.state.position;
  const std::string epoch = at.batch == 0 ? fmt::format("the end of epoch {}", at.epoch)
                                          : fmt::format("in epoch {}", at.epoch + 1);
  options_.inform(fmt::format("saved step {}, {} ({}, {:.2f} s, {:.3f} s blocked)", step, epoch,
                              format_bytes(result.num_bytes), result.seconds,
                              save.blocked_seconds));
  checkpoints_.update(policy_, step);
}

void Checkpointer::check_result(const SaveResult& result, int64_t step, const std::string& folder) {
  const int64_t last_saved = policy_.last_saved();
  check_finite(result, folder, step, last_saved, config_.compile.optimizer.loc);
  if (result.saved || !result.unequal.empty()) {
    replicas_.record(result.unequal, step, last_saved);
  }
}

std::string Checkpointer::save_as(const std::string& path, const TrainPosition& at) {
  finish_save();
  const SaveResult result = saver_.save_as(path, checkpoints_.make_notes(at, policy_));
  check_result(result, at.step, std::filesystem::path(path).parent_path().string());
  return result.error;
}

}  // namespace meshtrain
