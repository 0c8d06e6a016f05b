#include "train/checkpointer.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/memory.h"
#include "base/text.h"
#include "exec/executor.h"
#include "train/callbacks/monitor.h"
#include "train/checkpoint_files.h"
#include "train/restore.h"
#include "train/signals.h"

namespace meshtrain {
namespace {

constexpr int kMaxFailures = 3;  // in a row, then the run stops

int64_t resident_memory() {
  long pages = 0;
  if (FILE* file = fopen("/proc/self/statm", "re")) {
    if (fscanf(file, "%*d %ld", &pages) != 1) {
      pages = 0;
    }
    fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// Signals go to the thread that looks at their flags.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Checkpointer::Checkpointer(Engine& engine, const Config& config, const Dataset& train,
                           CheckpointerOptions options)
    : engine_(engine),
      config_(config),
      train_(train),
      options_(std::move(options)),
      folder_(options_.run_dir + "/checkpoints"),
      snapshot_(engine.store(), engine.mesh()) {
  const std::string resumed = options_.run_id;
  if (options_.run_id.empty()) {
    options_.run_id = new_run_id();
  }
  lock_ = std::make_unique<CheckpointLock>(folder_, options_.run_id);
  for (const std::string& warning :
       clean_checkpoints(folder_, {options_.run_id, lock_->previous_run()})) {
    options_.warn(warning);
  }
  if (config.checkpoint.every.value.unit != Interval::Unit::kNever) {
    check_checkpoint_folder(folder_, snapshot_.num_bytes(), config.checkpoint.keep);
  }
  choose_monitor();
  last_save_ended_ = last_step_ = options_.now();
}

Checkpointer::~Checkpointer() {
  if (saving_.valid()) {
    saving_.wait();
  }
}

void Checkpointer::choose_monitor() {
  const CheckpointConfig& config = config_.checkpoint;
  const bool validates = config_.data.validation || config_.fit.validation_split.value > 0;
  monitor_ = !config.monitor->empty() ? config.monitor.value : validates ? "val_loss" : "";
  larger_is_better_ = config.mode.value == "max";
  if (config.mode.value != "auto" || monitor_.empty()) {
    return;
  }
  if (const auto larger = meshtrain::larger_is_better(engine_.setup().graphs(), monitor_)) {
    larger_is_better_ = *larger;
    return;
  }
  Diagnostics diagnostics;
  diagnostics
      .error("E113", config.monitor.loc,
             fmt::format("`monitor: {}` is no loss and no metric of this model", monitor_))
      .help("name one of `compile.metrics`, with val_ before it for the validation data");
  throw ConfigError(diagnostics);
}

void Checkpointer::resume(const CheckpointReader& reader, bool own) {
  const TrainState& state = reader.state();
  if (state.monitor == monitor_) {
    state_.best = linked_best_ = state.best;
    state_.best_step = linked_step_ = own ? state.best_step : -1;
  }
  for (Persistent* persistent : states_) {
    const auto found = state.callbacks.find(persistent->state_name());
    if (found != state.callbacks.end()) {
      persistent->load_state(found->second);
    }
  }
  if (own) {
    std::vector<int64_t> newer;
    for (const int64_t step : checkpoint_steps(folder_)) {
      if (step > reader.manifest().step) {
        newer.push_back(step);
      }
    }
    for (const std::string& path : set_aside(folder_, newer)) {
      options_.warn(fmt::format("newer than what is resumed from, kept as {}", path));
    }
    last_saved_ = resumed_from_ = reader.manifest().step;
  }
}

bool Checkpointer::fits_in_memory() const {
  const int64_t wanted = config_.checkpoint.memory;
  const int64_t limit = wanted > 0 ? wanted : available_memory() / 4;
  return snapshot_.num_bytes() <= limit;
}

void Checkpointer::save(const TrainPosition& at, Wait wait) {
  poll();
  if (at.step == last_saved_) {
    if (new_best_) {  // saved while the validation ran that found it the best
      state_.best_step = at.step;
      link_best(state_);
      new_best_ = false;
    }
    return;
  }
  if (saving_.valid()) {
    if (wait == Wait::kNever) {
      return;
    }
    finish_save();
  }
  start(at);
  if (wait == Wait::kUntilSaved) {
    finish_save();
  }
}

void Checkpointer::take_notes(const TrainPosition& at) {
  if (!has_cursor_) {
    state_.cursor = data_cursor(train_, config_);
    has_cursor_ = true;
  }
  state_.position = at;
  state_.iterations = engine_.iterations();
  state_.learning_rate = engine_.fixed_learning_rate();
  state_.monitor = monitor_;
  state_.callbacks.clear();
  for (const Persistent* persistent : states_) {
    state_.callbacks[persistent->state_name()] = persistent->save_state();
  }
  notes_ = {.state = state_,
            .written_by = options_.written_by,
            .run_id = options_.run_id,
            .parent_run = options_.parent_run,
            .time = utc_time(),
            .loss = engine_.last_loss(),
            .texts = options_.texts};
}

// Starts to write a copy of the state while training goes on; false when there is no memory for it.
bool Checkpointer::start_beside() {
  if (!config_.checkpoint.async || !fits_in_memory()) {
    return false;
  }
  std::string why;
  try {
    snapshot_.copy();
    const SignalsBlocked blocked;
    saving_ = std::async(std::launch::async, [this] {
      return write_checkpoint(folder_, snapshot_, notes_, options_.before_commit);
    });
    return true;
  } catch (const RuntimeFailure& failure) {
    if (failure.exit_code() != ExitCode::kMesh) {
      throw;
    }
    why = failure.what();
  } catch (const std::system_error& error) {  // no thread: there is no room for its stack
    why = error.what();
  }
  if (!waits_for_saves_) {
    options_.warn(fmt::format("training waits while checkpoints are written: {}", why));
  }
  waits_for_saves_ = true;
  snapshot_.drop_copies();
  return false;
}

void Checkpointer::start(const TrainPosition& at) {
  const double begin = options_.now();
  if (new_best_) {
    state_.best_step = at.step;
  }
  new_best_ = false;
  take_notes(at);
  if (start_beside()) {
    blocked_ = options_.now() - begin;
  } else {
    snapshot_.borrow();
    const SaveResult result = write_checkpoint(folder_, snapshot_, notes_, options_.before_commit);
    blocked_ = options_.now() - begin;
    note(result);
  }
}

void Checkpointer::poll() {
  if (saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    finish_save();
  }
}

void Checkpointer::finish_save() {
  if (!saving_.valid()) {
    return;
  }
  const double begin = options_.now();
  saving_.wait();
  blocked_ += options_.now() - begin;
  note(saving_.get());
}

void Checkpointer::note(const SaveResult& result) {
  const int64_t step = notes_.state.position.step;
  last_save_ended_ = options_.now();
  save_seconds_ = std::max(save_seconds_, result.seconds);
  check_finite(result, folder_);
  if (!result.saved) {
    if (state_.best_step == step) {  // the best is one that there is
      state_.best_step = linked_step_;
      state_.best = new_best_ ? state_.best : linked_best_;
    }
    note_failure(result.error);
    return;
  }
  failures_ = 0;
  last_error_.clear();
  last_saved_ = step;
  const Interval& keep_every = config_.checkpoint.keep_every;
  const TrainPosition& at = notes_.state.position;
  const int64_t count = static_cast<int64_t>(keep_every.count);
  if ((keep_every.unit == Interval::Unit::kSteps && step % count == 0) ||
      (keep_every.unit == Interval::Unit::kEpochs && at.batch == 0 && at.epoch % count == 0)) {
    pinned_.push_back(step);
  }
  options_.inform(fmt::format("saved step {} ({}, {:.2f} s, {:.3f} s blocked)", step,
                              format_bytes(result.num_bytes), result.seconds, blocked_));
  if (notes_.state.best_step == step) {
    link_best(notes_.state);
  }
  prune();
}

void Checkpointer::link_best(const TrainState& state) {
  linked_best_ = state.best;
  linked_step_ = state.best_step;
  try {
    replace_link(checkpoint_name(linked_step_), folder_ + "/best");
  } catch (const FileError& error) {
    options_.warn(error.what());
  }
}

void Checkpointer::check_finite(const SaveResult& result, const std::string& folder) const {
  if (result.not_finite.empty()) {
    return;
  }
  const int64_t step = notes_.state.position.step;
  Diagnostics diagnostics;
  diagnostics
      .error("E501", config_.compile.optimizer.loc,
             fmt::format("the model of step {} is not finite: {}", step, result.not_finite))
      .note(fmt::format("it is in {}/rejected/{}; the last good checkpoint is {}", folder,
                        checkpoint_name(step),
                        last_saved_ < 0 ? "none" : checkpoint_name(last_saved_)))
      .help("a smaller learning rate, or clipping (clipnorm, global_clipnorm) on the optimizer");
  throw ConfigError(diagnostics);
}

std::string Checkpointer::save_to(const std::string& path, const TrainPosition& at) {
  finish_save();
  take_notes(at);
  snapshot_.borrow();
  const SaveResult result = replace_checkpoint(path, snapshot_, notes_, options_.before_commit);
  check_finite(result, std::filesystem::path(path).parent_path().string());
  return result.error;
}

void Checkpointer::prune() {
  std::vector<int64_t> pinned = pinned_;
  pinned.push_back(state_.best_step);
  pinned.push_back(linked_step_);
  pinned.push_back(resumed_from_);
  for (const std::string& warning :
       prune_checkpoints(folder_, config_.checkpoint.keep, pinned, options_.run_id)) {
    options_.warn(warning);
  }
}

void Checkpointer::note_failure(const std::string& error) {
  last_error_ = error;
  ++failures_;
  const std::string good =
      last_saved_ < 0 ? "there is no checkpoint yet"
                      : fmt::format("the last good one is {}", checkpoint_name(last_saved_));
  if (config_.checkpoint.on_error.value == "stop" || failures_ >= kMaxFailures) {
    throw RuntimeFailure(ExitCode::kWriteFailed, fmt::format("{}; {}", error, good));
  }
  options_.warn(fmt::format("{}; {}; training goes on", error, good));
}

bool Checkpointer::is_due(double count, Interval::Unit unit) const {
  const Interval& every = config_.checkpoint.every;
  return every.unit == unit && std::fmod(count, every.count) == 0;
}

// A signal, or the end of run.max_time: with time for the save and two steps.
bool Checkpointer::must_stop() const {
  const double limit = config_.run.max_time;
  const double margin = 2 * save_seconds_ + 2 * longest_step_;
  return stop_signal() != 0 ||
         (limit > 0 && options_.now() - options_.started_at + margin >= limit);
}

void Checkpointer::stop(const TrainPosition& at) {
  const std::string why =
      stop_signal() != 0 ? signal_name(stop_signal()) : std::string("run.max_time");
  const std::string done = fmt::format("step {} of epoch {}", at.batch, at.epoch + 1);
  if (stop_signal() != 0 && !stop_saves()) {
    finish_save();
    throw_if_stopped(done);
  }
  save(at, Wait::kUntilSaved);
  if (last_saved_ != at.step) {
    throw RuntimeFailure(ExitCode::kWriteFailed,
                         fmt::format("stopped by {} after {}, and {}", why, done, last_error_));
  }
  throw StopRequested(
      ExitCode::kStopped,
      fmt::format("stopped by {} after {}; saved as {}/{}\ngo on with: meshtrain resume {}", why,
                  done, folder_, checkpoint_name(at.step), options_.run_dir));
}

void Checkpointer::report_place(const TrainPosition& at) {
  if (!take_report_request()) {
    return;
  }
  std::string logs;
  for (const auto& [name, value] : at.epoch_trained ? at.logs : engine_.logs()) {
    logs += fmt::format(" - {}: {}", name, progress_number(value, true));
  }
  options_.report(fmt::format(
      "epoch {}/{}, {} {} ({} in all), {:.2f} ms/step at most, {} of memory, last checkpoint {}{}",
      at.epoch + 1, config_.fit.epochs.value, at.epoch_trained ? "validating after step" : "step",
      at.batch, at.step, longest_step_ * 1e3, format_bytes(resident_memory()),
      last_saved_ < 0 ? "none" : checkpoint_name(last_saved_), logs));
}

void Checkpointer::on_fit_begin(const TrainPosition& at) {
  last_step_ = last_save_ended_ = options_.now();
  if (must_stop()) {
    stop(at);
  }
}

int64_t Checkpointer::steps_to_turn(const TrainPosition& at) const {
  const Interval& every = config_.checkpoint.every;
  if (every.unit != Interval::Unit::kSteps) {
    return std::numeric_limits<int64_t>::max();
  }
  const int64_t count = std::max<int64_t>(static_cast<int64_t>(every.count), 1);
  return count - at.step % count;
}

void Checkpointer::after_step(const TrainPosition& at, bool last) {
  const double now = options_.now();
  longest_step_ = std::max(longest_step_, now - last_step_);
  poll();
  report_place(at);
  asked_ = take_checkpoint_request() || asked_;
  const Interval& every = config_.checkpoint.every;
  due_ = due_ || is_due(static_cast<double>(at.step), Interval::Unit::kSteps) ||
         (every.unit == Interval::Unit::kSeconds && now - last_save_ended_ >= every.count);
  if (!last) {  // after the last step the epoch's end is near, which is the better place
    if (must_stop()) {
      stop(at);
    }
    if (due_ || asked_) {
      save(at, Wait::kUntilFree);
      due_ = asked_ = false;
    }
  }
  last_step_ = options_.now();
}

void Checkpointer::during_validation(const TrainPosition& at) {
  poll();
  report_place(at);
  if (must_stop()) {
    stop(at);
  }
}

void Checkpointer::watch_best(const TrainPosition&, const Logs& logs) {
  for (const auto& [name, value] : logs) {
    const bool better =
        state_.best_step < 0 || (larger_is_better_ ? value > state_.best : value < state_.best);
    if (name == monitor_ && !std::isnan(value) && better) {
      state_.best = value;
      new_best_ = true;
    }
  }
}

void Checkpointer::after_epoch(const TrainPosition& at, const Logs& logs) {
  watch_best(at, logs);
  const Interval& every = config_.checkpoint.every;
  const bool never = every.unit == Interval::Unit::kNever;
  due_ = due_ || is_due(static_cast<double>(at.epoch), Interval::Unit::kEpochs);
  if (must_stop()) {
    stop(at);
  }
  const bool last = at.epoch >= config_.fit.epochs;
  if (due_ || asked_ || ((new_best_ || last) && !never)) {
    // Epochs of milliseconds need not all be saved unless somebody said so.
    const bool wanted = asked_ || new_best_ || last || config_.checkpoint.every.loc;
    save(at, wanted ? Wait::kUntilFree : Wait::kNever);
    due_ = asked_ = false;
  }
  last_step_ = options_.now();
}

void Checkpointer::on_fit_end(const TrainPosition& at) {
  finish_save();
  const bool never = config_.checkpoint.every.value.unit == Interval::Unit::kNever;
  if (!never && at.step > 0 && last_saved_ != at.step) {
    save(at, Wait::kUntilSaved);
    if (last_saved_ != at.step) {
      throw RuntimeFailure(ExitCode::kWriteFailed, "the last " + last_error_);
    }
  }
}

void Checkpointer::during_evaluation() {
  if (stop_signal() != 0 && stop_saves()) {
    throw StopRequested(ExitCode::kStopped,
                        fmt::format("stopped by {} in the evaluation after training; all of the "
                                    "training is saved\ngo on with: meshtrain resume {}",
                                    signal_name(stop_signal()), options_.run_dir));
  }
  throw_if_stopped("training, in the evaluation");
}

}  // namespace meshtrain
