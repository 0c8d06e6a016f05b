// How a Checkpointer saves; when it does is in checkpointer.cc.
#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/durable_file.h"
#include "base/memory.h"
#include "base/system_calls.h"
#include "base/text.h"
#include "train/checkpointer.h"

namespace meshtrain {
namespace {

constexpr int kMaxFailures = 3;  // in a row, then the run stops
// Of files that go to rank 0: of each process, and of all together.
constexpr size_t kPartBytes = size_t{8} << 20, kRoundBytes = size_t{256} << 20;

}  // namespace

void Checkpointer::warn_of_waiting(const std::string& why) {
  if (!waits_for_saves_) {
    options_.warn(fmt::format("training waits while checkpoints are written: {}", why));
  }
  waits_for_saves_ = true;
}

// On every process, or on none: all must note a save at the same step.
bool Checkpointer::copy_state() {
  const int64_t wanted = config_.checkpoint.memory;
  const Processes& processes = coordinator_.processes();
  const int sharing = processes.group == nullptr ? 1 : processes.group->local_size();
  const int64_t limit = wanted > 0 ? wanted : available_memory() / 4 / sharing;
  bool is_copied = false;
  try {
    if (snapshot_.copied_bytes() <= limit) {
      snapshot_.copy();
      is_copied = true;
    }
  } catch (const RuntimeFailure& failure) {
    if (failure.exit_code() != ExitCode::kMesh) {
      throw;
    }
    warn_of_waiting(failure.what());
  }
  const std::vector<std::string> all =
      coordinator_.all_gather("memory for a save", is_copied ? "yes" : "no");
  if (std::count(all.begin(), all.end(), "no") > 0) {
    snapshot_.drop_copies();
    return false;
  }
  return true;
}

void Checkpointer::save(const TrainPosition& at, Wait wait) {
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
  state_.position = at;
  state_.iterations = engine_.iterations();
  state_.learning_rate = engine_.fixed_learning_rate();
  state_.monitor = monitor_;
  state_.callbacks.clear();
  for (const Hook* hook : states_) {
    state_.callbacks[hook->state_name()] = hook->save_state();
  }
  notes_ = {.state = state_,
            .written_by = options_.written_by,
            .run_id = options_.run_id,
            .parent_run = options_.parent_run,
            .time = utc_time(),
            .loss = engine_.last_loss(),
            .texts = options_.texts};
}

// How the processes that save together talk: a thread beside the steps only over the heartbeat
// monitor, since the group is the main thread's. `anywhere`: who sees the run's folder need not see
// the one that is saved into.
SaveOptions Checkpointer::save_options(bool anywhere) {
  SaveOptions out;
  out.before_commit = options_.before_commit;
  out.rank = coordinator_.rank();
  if (coordinator_.is_alone()) {
    return out;
  }
  out.name = coordinator_.describe(out.rank);
  out.is_committing = &is_committing_;
  const std::shared_ptr<HeartbeatMonitor> monitor = coordinator_.processes().monitor;
  out.all_gather = [this, monitor](std::string mine) {
    return monitor == nullptr
               ? coordinator_.all_gather("a save", mine)
               : monitor->all_gather("a save", std::move(mine), Coordinator::kLongestFiles);
  };
  std::vector<bool> sees = options_.sees_folder;
  if (anywhere) {
    sees.assign(sees.size(), false);
  }
  if (const auto blind = std::count(sees.begin(), sees.end(), false); blind > 0) {
    out.sees_folder = coordinator_.is_first() || sees[static_cast<size_t>(out.rank)];
    out.part_bytes = std::min(kPartBytes, kRoundBytes / static_cast<size_t>(blind));
    out.gather = [this, monitor](std::string mine) {
      return monitor == nullptr
                 ? coordinator_.all_gather("a save's files", mine)
                 : monitor->gather("a save's files", std::move(mine), Coordinator::kLongestFiles);
    };
  }
  return out;
}

// Starts to write a copy of the state while training goes on; false where that cannot be.
bool Checkpointer::start_beside(bool replaces) {
  const bool can_talk = coordinator_.is_alone() || coordinator_.processes().monitor != nullptr;
  if (!config_.checkpoint.async || !can_talk || !copy_state()) {
    return false;
  }
  const auto save = [this, replaces, options = save_options()] { return write(options, replaces); };
  try {
    const SignalsBlocked blocked;
    saving_ = std::async(std::launch::async, save);
  } catch (const std::system_error& error) {  // no thread: there is no room for its stack
    warn_of_waiting(error.what());
    const auto announced = coordinator_.announce("writing a checkpoint");
    saving_ = std::async(std::launch::deferred, save);
    saving_.wait();  // and is noted when the others note it, who may write beside their steps
    snapshot_.drop_copies();
  }
  return true;
}

// Whether a save of this step failed after it had given its checkpoint the name, which may not be
// on the disk. That one, which may be all there is, stays until the next one is in its place.
bool Checkpointer::is_named(int64_t step) const {
  const std::string path = folder_ + "/" + checkpoint_name(step);
  const auto announced = coordinator_.announce("looking at a save that failed");
  try {
    return is_real_folder(path) && CheckpointReader(path).manifest().run_id == options_.run_id;
  } catch (const Error&) {  // what stays there is told by the save
    return false;
  }
}

// By rank 0 it is decided what becomes of a name; the others only write their part.
SaveResult Checkpointer::write(const SaveOptions& options, bool replaces) const {
  const std::string path = folder_ + "/" + checkpoint_name(notes_.state.position.step);
  return replaces ? replace_checkpoint(path, snapshot_, notes_, options)
                  : write_checkpoint(folder_, snapshot_, notes_, options);
}

void Checkpointer::start(const TrainPosition& at) {
  const double begin = options_.now();
  const bool replaces = last_failed_ == at.step && coordinator_.is_first() && is_named(at.step);
  if (new_best_) {
    state_.best_step = at.step;
  }
  new_best_ = false;
  take_notes(at);
  if (start_beside(replaces)) {
    blocked_ = options_.now() - begin;
  } else {
    snapshot_.borrow();
    coordinator_.progress(at, "save");
    const SaveResult result = write(save_options(), replaces);
    blocked_ = options_.now() - begin;
    note(result);
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
  last_save_ended_ = coordinator_.now();
  save_seconds_ = std::max(save_seconds_, result.seconds);
  check_finite(result, folder_);
  if (!result.unequal.empty()) {
    report_unequal(result.unequal, step);
  }
  if (!result.saved) {
    if (state_.best_step == step) {  // the best is one that there is
      state_.best_step = linked_step_;
      state_.best = new_best_ ? state_.best : linked_best_;
    }
    last_failed_ = step;
    note_failure(result.error);
    return;
  }
  failures_ = 0;
  last_error_.clear();
  last_saved_ = equal_at_ = step;
  coordinator_.set_last_checkpoint(step);
  if (stays_for_ever(notes_.state.position)) {
    pinned_.push_back(step);
  }
  options_.inform(fmt::format("saved step {} ({}, {:.2f} s, {:.3f} s blocked)", step,
                              format_bytes(result.num_bytes), result.seconds, blocked_));
  if (notes_.state.best_step == step) {
    link_best(notes_.state);
  }
  prune();
}

bool Checkpointer::stays_for_ever(const TrainPosition& at) const {
  const Interval& keep_every = config_.checkpoint.keep_every;
  const int64_t count = static_cast<int64_t>(keep_every.count);
  return (keep_every.unit == Interval::Unit::kSteps && at.step % count == 0) ||
         (keep_every.unit == Interval::Unit::kEpochs && at.batch == 0 && at.epoch % count == 0);
}

// What was kept before the run was resumed; where that cannot be told, it stays too.
void Checkpointer::pin_those_there() {
  const Interval::Unit unit = config_.checkpoint.keep_every->unit;
  if (unit == Interval::Unit::kNever) {
    return;
  }
  const auto announced = coordinator_.announce("looking at old checkpoints");
  for (const int64_t step : checkpoint_steps(folder_)) {
    TrainPosition at{.step = step};
    bool is_damaged = false;
    if (unit == Interval::Unit::kEpochs) {
      try {
        at = CheckpointReader(folder_ + "/" + checkpoint_name(step)).state().position;
      } catch (const ConfigError&) {
        is_damaged = true;
      }
    }
    if (is_damaged || stays_for_ever(at)) {
      pinned_.push_back(step);
    }
  }
}

void Checkpointer::link_best(const TrainState& state) {
  linked_best_ = state.best;
  linked_step_ = state.best_step;
  if (!coordinator_.is_first()) {
    return;
  }
  try {
    set_best_link(folder_, linked_step_);
  } catch (const FileError& error) {
    options_.warn(error.what());
  }
}

void Checkpointer::check_finite(const SaveResult& result, const std::string& folder) const {
  if (result.non_finite.empty()) {
    return;
  }
  const int64_t step = notes_.state.position.step;
  throw ConfigError("E501", config_.compile.optimizer.loc,
                    fmt::format("the model of step {} is not finite: {}", step, result.non_finite))
      .note(fmt::format("{}; the last good checkpoint is {}",
                        result.error.empty()
                            ? fmt::format("it is in {}/rejected/{}", folder, checkpoint_name(step))
                            : result.error,
                        last_saved_ < 0 ? "none" : checkpoint_name(last_saved_)))
      .help("a smaller learning rate, or clipping (clipnorm, global_clipnorm) on the optimizer");
}

void Checkpointer::report_unequal(const std::string& what, int64_t step) const {
  throw ConfigError("E510", {},
                    fmt::format("{}, found after step {}: the same was computed there", what, step))
      .note(equal_at_ < 0 ? std::string("it was not compared before")
                          : fmt::format("at step {} they were equal", equal_at_))
      .note(fmt::format("the last good checkpoint is {}",
                        last_saved_ < 0 ? "none" : checkpoint_name(last_saved_)))
      .help("memory or processor of one of these hosts are likely at fault; go on without it");
}

std::string Checkpointer::save_to(const std::string& path, const TrainPosition& at) {
  finish_save();
  take_notes(at);
  snapshot_.borrow();
  coordinator_.progress(at, "save");
  const SaveResult result = replace_checkpoint(path, snapshot_, notes_, save_options(true));
  if (!result.unequal.empty()) {
    report_unequal(result.unequal, at.step);
  }
  check_finite(result, std::filesystem::path(path).parent_path().string());
  return result.error;
}

void Checkpointer::prune() {
  if (!coordinator_.is_first()) {
    return;
  }
  std::vector<int64_t> pinned = pinned_;
  pinned.push_back(state_.best_step);
  pinned.push_back(linked_step_);
  pinned.push_back(resumed_from_);
  const auto announced = coordinator_.announce("deleting old checkpoints");
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
  if (config_.checkpoint.on_error == SaveFailure::kStop || failures_ >= kMaxFailures) {
    throw RuntimeFailure(ExitCode::kWriteFailed, fmt::format("{}; {}", error, good));
  }
  options_.warn(fmt::format("{}; {}; training goes on", error, good));
}

}  // namespace meshtrain
