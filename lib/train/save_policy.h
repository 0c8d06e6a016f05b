// SavePolicy: when a run saves and when it stops, which checkpoint is the best and which ones are
// never deleted. It knows no disk, thread or device: positions, logs, clock readings, signals and
// results of saves are arguments. Processes that give it the same arguments decide alike.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format.h"
#include "config/config.h"

namespace meshtrain {

// The log whose best value makes a checkpoint the best. Without a name there is no best one.
struct MonitoredLog {
  std::string name;
  bool larger_is_better = false;
};

// Returns checkpoint.monitor, else val_loss where there is validation. `larger_is_better` returns
// nothing for names that are no log of the model. Throws ConfigError E113 for such a name with
// `mode: auto`.
MonitoredLog monitored_log(
    const Config& config,
    const std::function<std::optional<bool>(const std::string&)>& larger_is_better);

struct BestCheckpoint {
  double value = 0;   // of the monitored log
  int64_t step = -1;  // -1: none yet
};

class SavePolicy {
 public:
  // What becomes of a due save while an earlier one is being written.
  enum class WhenBusy : uint8_t { kSkip, kWait };

  // The config must outlive the policy. run.max_time counts from `started_at`.
  SavePolicy(const Config& config, MonitoredLog monitored, double started_at);

  // --- a resumed run: what earlier saves left ----------------------------------------------------
  void resume_best(const BestCheckpoint& best) { best_ = saved_best_ = best; }
  void resume_at(int64_t step) { last_saved_ = resumed_from_ = step; }
  // True when checkpoint.keep_every keeps the checkpoint of this position.
  bool is_kept(const TrainPosition& at) const;
  void pin(const std::vector<int64_t>& steps) {
    pinned_.insert(pinned_.end(), steps.begin(), steps.end());
  }

  // --- what happened ----------------------------------------------------------------------------
  void begin(double now);
  void end_step(int64_t step, double now);
  // Excludes the time since the last step, a save's or a validation's, from longest_step().
  void skip_time(double now) { last_step_ = now; }
  void end_epoch(int64_t epochs, const Logs& logs);  // `epochs` are done
  void request() { is_requested_ = true; }           // a user asked for a checkpoint
  // A save of `step` begins, or that step is saved. Returns true when it is the best one from now
  // on.
  bool mark_best(int64_t step);
  // The save of `state`, written in `seconds`, ended.
  void end_save(const TrainState& state, bool is_saved, double now, double seconds);

  // --- what follows -----------------------------------------------------------------------------
  // Returns the number of steps after `step` before a save by steps is due, at least 1.
  int64_t steps_until_due(int64_t step) const;
  bool is_due() const { return is_due_ || is_requested_; }
  // Within an epoch: returns true when a save is due, which is not due any more then.
  bool take_step_save();
  // The same after end_epoch(); nothing when no save is due. `is_kept`: is_kept() of the epoch's
  // end, whose save waits.
  std::optional<WhenBusy> take_epoch_save(int64_t epochs, bool is_kept = false);
  bool saves_at_end(int64_t step) const;  // of fit
  // True for a signal, and when run.max_time leaves time for two saves and two steps at most.
  bool must_stop(double now, int signal) const;
  // True when saves failed: one with `on_error: stop`, else three in a row.
  bool gives_up() const;
  // "; 3 saves in a row failed, which is the limit", or "" with `on_error: stop`.
  std::string limit_text() const;
  // Steps whose checkpoints are not deleted.
  std::vector<int64_t> pinned() const;

  const std::string& monitor() const { return monitored_.name; }
  const BestCheckpoint& best() const { return best_; }
  const BestCheckpoint& saved_best() const { return saved_best_; }
  int64_t last_saved() const { return last_saved_; }  // step; -1: none
  double longest_step() const { return longest_step_; }

 private:
  bool never_saves() const { return every_.unit == Interval::Unit::kNever; }

  const CheckpointConfig& config_;
  const Interval& every_;
  const double max_time_, started_at_;
  const int64_t last_epoch_;
  const MonitoredLog monitored_;

  BestCheckpoint best_, saved_best_;
  bool is_new_best_ = false;  // the epoch that ended is the best
  bool is_due_ = false;       // also while the epoch's last step was done
  bool is_requested_ = false;
  int64_t last_saved_ = -1, resumed_from_ = -1;
  std::vector<int64_t> pinned_;
  int failures_ = 0;  // in a row
  double last_save_ended_ = 0, save_seconds_ = 0;
  double last_step_ = 0, longest_step_ = 0;
};

}  // namespace meshtrain
