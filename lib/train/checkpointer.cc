#include "train/checkpointer.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/durable_file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/replicas.h"
#include "checkpoint/restore.h"
#include "engine/signals.h"
#include "exec/executor.h"
#include "record/progress.h"
#include "train/callbacks/make_callbacks.h"
#include "train/callbacks/monitor.h"

namespace meshtrain {
namespace {

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

// Of equal values the same; not the bits of NaN, which may be any.
uint64_t hash_of(const Logs& logs) {
  uint64_t hash = 1;
  for (const auto& [name, value] : logs) {
    hash = hash_mix(hash, hash_text(name));
    hash = hash_mix(hash, std::isnan(value) ? 0 : std::bit_cast<uint64_t>(value));
  }
  return hash;
}

}  // namespace

Checkpointer::Checkpointer(Engine& engine, const Config& config, CheckpointerOptions options)
    : engine_(engine),
      config_(config),
      options_(std::move(options)),
      folder_(options_.run_dir + "/checkpoints"),
      alone_({}, options_.now),
      coordinator_(options_.coordinator == nullptr ? alone_ : *options_.coordinator),
      snapshot_(engine.store()) {
  if (options_.run_id.empty()) {
    options_.run_id = coordinator_.broadcast("naming the run", new_run_id);
  }
  coordinator_.on_rank_zero("opening the folder of checkpoints", [&] {
    lock_ = std::make_unique<CheckpointLock>(folder_, options_.run_id);
    for (const std::string& warning :
         clean_checkpoints(folder_, {options_.run_id, lock_->previous_run()})) {
      options_.warn(warning);
    }
    if (config.checkpoint.every.value.unit != Interval::Unit::kNever) {
      check_checkpoint_folder(folder_, snapshot_.num_bytes(), config.checkpoint.keep);
    }
  });
  state_.cursor = options_.cursor;
  choose_monitor();
  last_save_ended_ = last_step_ = coordinator_.now();
  if (const auto& monitor = coordinator_.processes().monitor; monitor != nullptr) {
    on_abort_.emplace(monitor->on_abort([this] {  // a save that only lacks its name gets it
      while (is_committing_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }));
  }
}

Checkpointer::~Checkpointer() {
  if (saving_.valid()) {
    const auto announced = coordinator_.announce("writing a checkpoint");
    saving_.wait();
  }
}

void Checkpointer::choose_monitor() {
  const CheckpointConfig& config = config_.checkpoint;
  const bool validates = config_.data.validation || config_.fit.validation_split.value > 0;
  monitor_ = !config.monitor->empty() ? config.monitor.value : validates ? "val_loss" : "";
  larger_is_better_ = config.mode == MonitorMode::kMax;
  if (config.mode != MonitorMode::kAuto || monitor_.empty()) {
    return;
  }
  if (const auto larger = meshtrain::larger_is_better(engine_.setup().graphs(), monitor_)) {
    larger_is_better_ = *larger;
    return;
  }
  throw ConfigError("E113", config.monitor.loc,
                    fmt::format("`monitor: {}` is no loss and no metric of this model", monitor_))
      .help("name one of `compile.metrics`, with val_ before it for the validation data");
}

void Checkpointer::resume(const CheckpointReader& reader, bool own) {
  const TrainState& state = reader.state();
  const bool same_model = has_same_weights(engine_, reader);
  if (state.monitor == monitor_ && same_model) {
    state_.best = linked_best_ = state.best;
    // A better one that came later may have taken its place.
    const std::string there = coordinator_.broadcast("looking for the best checkpoint", [&] {
      return is_real_folder(folder_ + "/" + checkpoint_name(state.best_step)) ? "yes" : "no";
    });
    state_.best_step = linked_step_ = own && there == "yes" ? state.best_step : -1;
  }
  load_states(state.callbacks, same_model);
  if (own) {
    coordinator_.on_rank_zero("setting newer checkpoints aside", [&] {
      std::vector<int64_t> newer;
      for (const int64_t step : checkpoint_steps(folder_)) {
        if (step > reader.manifest().step) {
          newer.push_back(step);
        }
      }
      // A kill may have come between a save and its link, and the link may name a newer one.
      const int64_t linked = best_link(folder_);
      if (linked != state_.best_step &&
          (state_.best_step >= 0 || std::count(newer.begin(), newer.end(), linked) > 0)) {
        link_best(state_);
      }
      for (const std::string& path : quarantine(folder_, newer)) {
        options_.warn(fmt::format("newer than what is resumed from, kept as {}", path));
      }
      pin_those_there();
    });
    last_saved_ = resumed_from_ = reader.manifest().step;
    coordinator_.set_last_checkpoint(last_saved_);
  }
}

void Checkpointer::load_states(std::map<std::string, std::string> saved, bool same_model) {
  for (Hook* hook : states_) {
    const auto found = saved.extract(hook->state_name());
    if (found.empty()) {
      continue;
    }
    hook->load_state(found.mapped());
    if (!same_model) {
      hook->forget_model();
    }
  }
  for (const auto& [name, json] : saved) {  // of callbacks that are gone
    undo_callback(name, json, engine_);
  }
}

// At a place that all processes come to: a save that is written on all has ended on all.
void Checkpointer::look(Coordinator::Pace pace, uint64_t logs) {
  const bool is_written =
      !saving_.valid() || saving_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  if (coordinator_.look(pace, is_written, logs)) {
    finish_save();
  }
}

// Every run.check_replicas steps.
bool Checkpointer::compares_replicas(const TrainPosition& at) const {
  const int64_t every = config_.run.check_replicas;
  return !coordinator_.is_alone() && every > 0 && at.step % every == 0;
}

// What several processes hold alike must be alike.
void Checkpointer::check_replicas(const TrainPosition& at) {
  const std::string difference = replica_difference(
      engine_.store(),
      coordinator_.all_gather("comparing replicas", replica_hashes(engine_.store())));
  if (!difference.empty()) {
    report_unequal(difference, at.step);
  }
  equal_at_ = std::max(equal_at_, at.step);
}

bool Checkpointer::is_due(double count, Interval::Unit unit) const {
  const Interval& every = config_.checkpoint.every;
  return every.unit == unit && std::fmod(count, every.count) == 0;
}

// A signal, or the end of run.max_time: with time for the save and two steps.
bool Checkpointer::must_stop() const {
  const double limit = config_.run.max_time;
  const double margin = 2 * save_seconds_ + 2 * longest_step_;
  return coordinator_.stop_signal() != 0 ||
         (limit > 0 && coordinator_.now() - options_.started_at + margin >= limit);
}

void Checkpointer::stop(const TrainPosition& at) {
  const int signal = coordinator_.stop_signal();
  const std::string why = signal != 0 ? signal_name(signal) : std::string("run.max_time");
  const std::string done = fmt::format("step {} of epoch {}", at.batch, at.epoch + 1);
  if (signal != 0 && !coordinator_.stop_saves()) {
    finish_save();
    throw_stopped(signal, done + "; weights were not saved");
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
  if (!coordinator_.take_report_request()) {
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

void Checkpointer::on_train_begin(const TrainPosition& at) {
  look(Coordinator::Pace::kNow);
  last_step_ = last_save_ended_ = coordinator_.now();
  if (must_stop()) {
    stop(at);
  }
}

int64_t Checkpointer::steps_until_sync(const TrainPosition& at) const {
  const Interval& every = config_.checkpoint.every;
  int64_t steps = std::numeric_limits<int64_t>::max();
  const auto turn_at_each = [&](int64_t count) {
    steps = std::min(steps, count - at.step % count);
  };
  if (every.unit == Interval::Unit::kSteps) {
    turn_at_each(std::max<int64_t>(static_cast<int64_t>(every.count), 1));
  }
  if (!coordinator_.is_alone() && config_.run.check_replicas > 0) {
    turn_at_each(config_.run.check_replicas);
  }
  return steps;
}

bool Checkpointer::needs_sync(const TrainPosition& at, bool last) {
  look(Coordinator::Pace::kPaced);
  const double now = coordinator_.now();
  longest_step_ = std::max(longest_step_, now - last_step_);
  last_step_ = now;
  report_place(at);
  asked_ = coordinator_.take_checkpoint_request() || asked_;
  const Interval& every = config_.checkpoint.every;
  due_ = due_ || is_due(static_cast<double>(at.step), Interval::Unit::kSteps) ||
         (every.unit == Interval::Unit::kSeconds && now - last_save_ended_ >= every.count);
  return compares_replicas(at) || (!last && (due_ || asked_ || must_stop()));
}

void Checkpointer::on_sync(const TrainPosition& at, bool last) {
  if (compares_replicas(at)) {
    check_replicas(at);
  }
  if (!last) {  // after the last step the epoch's end is near, which is the better place
    if (must_stop()) {
      stop(at);
    }
    if (due_ || asked_) {
      save(at, Wait::kUntilFree);
      due_ = asked_ = false;
    }
  }
  last_step_ = coordinator_.now();
}

void Checkpointer::after_hooks(const TrainPosition& at) {
  if (!options_.take_state_saves) {
    return;
  }
  for (const StateSave& wanted : options_.take_state_saves()) {
    wanted.done(save_to(wanted.path, at));
  }
}

void Checkpointer::on_pass_step(const PassPosition& position, const StepRunner& /*runner*/) {
  if (position.pass == Pass::kValidation) {
    during_validation(position.at);
  } else if (position.pass == Pass::kEvaluation) {
    during_evaluation();
  }
}

void Checkpointer::during_validation(const TrainPosition& at) {
  look(Coordinator::Pace::kPaced);
  report_place(at);
  if (must_stop()) {
    stop(at);
  }
}

void Checkpointer::watch_best(const Logs& logs) {
  for (const auto& [name, value] : logs) {
    const bool better =
        state_.best_step < 0 || (larger_is_better_ ? value > state_.best : value < state_.best);
    if (name == monitor_ && !std::isnan(value) && better) {
      state_.best = value;
      new_best_ = true;
    }
  }
}

void Checkpointer::on_epoch_boundary(const TrainPosition& at, const Logs& logs) {
  watch_best(logs);
  look(Coordinator::Pace::kNow, hash_of(logs));
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
  last_step_ = coordinator_.now();
}

void Checkpointer::on_fit_end(const TrainPosition& at) {
  end_ = at;
  finish_save();
  const bool never = config_.checkpoint.every.value.unit == Interval::Unit::kNever;
  if (!never && at.step > 0 && last_saved_ != at.step) {
    save(at, Wait::kUntilSaved);
    if (last_saved_ != at.step) {
      throw RuntimeFailure(ExitCode::kWriteFailed, "the last " + last_error_);
    }
  }
}

// With `every: never` nothing is saved yet. What is saved here goes on to the same end: what was
// done to the weights since (averages, the best epoch's) comes out the same when it is done again.
// Only more epochs than these would go on from other weights.
void Checkpointer::during_evaluation() {
  look(Coordinator::Pace::kPaced);
  const int signal = coordinator_.stop_signal();
  if (signal != 0 && coordinator_.stop_saves()) {
    const std::string why =
        fmt::format("stopped by {} in the evaluation after training", signal_name(signal));
    save(end_, Wait::kUntilSaved);
    if (last_saved_ != end_.step) {
      throw RuntimeFailure(ExitCode::kWriteFailed, fmt::format("{}, and {}", why, last_error_));
    }
    throw StopRequested(ExitCode::kStopped,
                        fmt::format("{}; all of the training is saved\ngo on with: meshtrain "
                                    "resume {}",
                                    why, options_.run_dir));
  }
  if (signal != 0) {
    throw_stopped(signal, fmt::format("training, in the evaluation; the weights are in "
                                      "{}/weights.safetensors",
                                      options_.run_dir));
  }
}

}  // namespace meshtrain
