#include "train/run_checkpoints.h"

#include <algorithm>
#include <utility>

#include "base/durable_file.h"
#include "checkpoint/restore.h"
#include "train/callbacks/make_callbacks.h"

namespace meshtrain {

RunCheckpoints::RunCheckpoints(Engine& engine, const CheckpointConfig& config,
                               const std::string& run_dir, CheckpointNotes notes,
                               const Coordinator& coordinator, Warn warn)
    : engine_(engine),
      config_(config),
      folder_(run_dir + "/checkpoints"),
      notes_(std::move(notes)),
      coordinator_(coordinator),
      warn_(std::move(warn)) {
  if (notes_.run_id.empty()) {
    notes_.run_id = coordinator_.broadcast("naming the run", new_run_id);
  }
  coordinator_.on_rank_zero("opening the folder of checkpoints", [&] {
    lock_ = std::make_unique<CheckpointLock>(folder_, notes_.run_id);
    for (const std::string& warning :
         clean_checkpoints(folder_, {notes_.run_id, lock_->previous_run()})) {
      warn_(warning);
    }
  });
}

std::string RunCheckpoints::path(int64_t step) const {
  return folder_ + "/" + checkpoint_name(step);
}

void RunCheckpoints::check_room(int64_t num_bytes) const {
  if (config_.every->unit != Interval::Unit::kNever) {
    coordinator_.on_rank_zero("checking the room for checkpoints",
                              [&] { check_checkpoint_folder(folder_, num_bytes, config_.keep); });
  }
}

CheckpointNotes RunCheckpoints::make_notes(const TrainPosition& at,
                                           const SavePolicy& policy) const {
  CheckpointNotes notes = notes_;
  notes.time = utc_time();
  notes.loss = engine_.last_loss();
  notes.state.position = at;
  notes.state.iterations = engine_.iterations();
  notes.state.learning_rate = engine_.fixed_learning_rate();
  notes.state.monitor = policy.monitor();
  notes.state.best = policy.best().value;
  notes.state.best_step = policy.best().step;
  for (const Hook* hook : states_) {
    notes.state.callbacks[hook->state_name()] = hook->save_state();
  }
  return notes;
}

void RunCheckpoints::load_states(std::map<std::string, std::string> saved, bool same_model) const {
  for (Hook* hook : states_) {
    const auto state = saved.extract(hook->state_name());
    if (state.empty()) {
      continue;
    }
    hook->load_state(state.mapped());
    if (!same_model) {
      hook->forget_model();
    }
  }
  for (const auto& [name, json] : saved) {  // of callbacks that are gone
    undo_callback(name, json, engine_);
  }
}

void RunCheckpoints::resume(const CheckpointReader& reader, bool own, SavePolicy& policy) const {
  const TrainState& state = reader.state();
  const bool same_model = has_same_weights(engine_, reader);
  load_states(state.callbacks, same_model);
  if (state.monitor == policy.monitor() && same_model) {
    // A better one that came later may have taken its place.
    const bool is_there = coordinator_.broadcast("looking for the best checkpoint", [&] {
      return is_real_folder(path(state.best_step)) ? "yes" : "no";
    }) == "yes";
    policy.resume_best({state.best, own && is_there ? state.best_step : -1});
  }
  if (!own) {
    return;
  }
  const int64_t step = reader.manifest().step;
  coordinator_.on_rank_zero("setting newer checkpoints aside", [&] {
    quarantine_newer(step, policy.best().step);
    policy.pin(kept_steps(policy));
  });
  policy.resume_at(step);
}

void RunCheckpoints::quarantine_newer(int64_t step, int64_t best) const {
  std::vector<int64_t> newer = checkpoint_steps(folder_);
  std::erase_if(newer, [&](int64_t other) { return other <= step; });
  // A kill may have come between a save and its link, and the link may name a newer one.
  const int64_t linked = best_link(folder_);
  if (linked != best &&
      (best >= 0 || std::find(newer.begin(), newer.end(), linked) != newer.end())) {
    link_best(best);
  }
  for (const std::string& quarantined : quarantine(folder_, newer)) {
    warn_(fmt::format("newer than what is resumed from, kept as {}", quarantined));
  }
}

// Returns the steps that checkpoint.keep_every keeps, and those of damaged checkpoints, whose epoch
// is unknown.
std::vector<int64_t> RunCheckpoints::kept_steps(const SavePolicy& policy) const {
  const Interval::Unit unit = config_.keep_every->unit;
  if (unit == Interval::Unit::kNever) {
    return {};
  }
  const auto announced = coordinator_.announce("looking at old checkpoints");
  std::vector<int64_t> steps = checkpoint_steps(folder_);
  std::erase_if(steps, [&](int64_t step) {
    try {
      return !policy.is_kept(unit == Interval::Unit::kEpochs
                                 ? CheckpointReader(path(step)).state().position
                                 : TrainPosition{.step = step});
    } catch (const ConfigError&) {
      return false;
    }
  });
  return steps;
}

void RunCheckpoints::update(const SavePolicy& policy, int64_t step) const {
  if (!coordinator_.is_first()) {
    return;
  }
  if (policy.saved_best().step == step) {
    link_best(step);
  }
  const auto announced = coordinator_.announce("deleting old checkpoints");
  for (const std::string& warning :
       prune_checkpoints(folder_, config_.keep, policy.pinned(), notes_.run_id)) {
    warn_(warning);
  }
}

void RunCheckpoints::link_best(int64_t step) const {
  if (!coordinator_.is_first()) {
    return;
  }
  try {
    set_best_link(folder_, step);
  } catch (const FileError& error) {
    warn_(error.what());
  }
}

}  // namespace meshtrain
