// Checkpointer: when to save, and what a stop on request means. Writes on a thread of its own, one
// save at a time; the steps wait for one copy of the state at most. Of several processes each has
// one, and they decide alike: by the step, or by what they agreed upon at the last look.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "engine/coordinator.h"
#include "engine/engine.h"
#include "engine/hook.h"
#include "train/callbacks/callback.h"

namespace meshtrain {

struct CheckpointerOptions {
  std::string run_dir;     // its checkpoints/ is the folder
  std::string written_by;  // "meshtrain 0.1.0"
  std::string run_id;      // of a run that goes on; empty: a new one
  std::string parent_run;  // of the checkpoint that it began from, if it was another run's
  DataCursor cursor;       // of the training data; of rank 0 at least
  std::vector<std::pair<std::string, std::string>> texts;  // config.yaml, ...: name and content
  Clock now;
  double started_at = 0;               // of the process, for run.max_time; on all that of rank 0
  Coordinator* coordinator = nullptr;  // of the engine's processes; null: one alone
  // With gather: root, whether each process sees run_dir; empty: all write into it.
  std::vector<bool> sees_folder;
  std::function<void(const std::string&)> warn;
  std::function<void(const std::string&)> inform;  // each save
  std::function<void(const std::string&)> report;  // where training is, when asked to
  std::function<void()> before_commit;             // see SaveOptions
  // Takes the saves that callbacks asked for; none where it is empty.
  std::function<std::vector<StateSave>()> take_state_saves = {};
};

class Checkpointer : public Hook {
 public:
  // Rank 0 takes the lock, cleans up and checks that there is room. Collective. Throws ConfigError
  // E420, E421 (exit 74), E455 (exit 6).
  Checkpointer(Engine& engine, const Config& config, CheckpointerOptions options);
  ~Checkpointer() override;  // waits for the save that is being written

  // A hook whose state goes into every checkpoint. Add before resume().
  void add_state(Hook& hook) { states_.push_back(&hook); }
  // The model was restored from this checkpoint; `own`: it is one of this folder, and what is newer
  // there (damaged, or of a past that is given up) is set aside. Throws FileError.
  void resume(const CheckpointReader& reader, bool own);

  void on_train_begin(const TrainPosition& at) override;
  int64_t steps_until_sync(const TrainPosition& at) const override;
  bool needs_sync(const TrainPosition& at, bool last) override;
  void on_sync(const TrainPosition& at, bool last) override;
  void after_hooks(const TrainPosition& at) override;
  void on_pass_step(const PassPosition& position, const StepRunner& runner) override;
  void on_epoch_boundary(const TrainPosition& next, const Logs& logs) override;
  void on_fit_end(const TrainPosition& at) override;

  // Saves all of the state as a checkpoint at `path`, in place of one that is there. Returns why it
  // was not saved; empty when it was.
  std::string save_to(const std::string& path, const TrainPosition& at);

  const std::string& run_id() const { return options_.run_id; }
  // Whether `monitor` is better when larger, and its name; empty when nothing is monitored.
  const std::string& monitor() const { return monitor_; }

 private:
  enum class Wait { kNever, kUntilFree, kUntilSaved };

  void choose_monitor();
  void load_states(std::map<std::string, std::string> saved, bool same_model);
  void save(const TrainPosition& at, Wait wait);
  void start(const TrainPosition& at);
  bool start_beside(bool replaces);
  void take_notes(const TrainPosition& at);
  bool is_named(int64_t step) const;
  SaveResult write(const SaveOptions& options, bool replaces) const;
  SaveOptions save_options(bool anywhere = false);
  void look(Coordinator::Pace pace, uint64_t logs = 0);
  bool compares_replicas(const TrainPosition& at) const;
  void check_replicas(const TrainPosition& at);
  [[noreturn]] void report_unequal(const std::string& what, int64_t step) const;
  void check_finite(const SaveResult& result, const std::string& rejected) const;
  void finish_save();  // waits for the save in flight
  void note(const SaveResult& result);
  bool stays_for_ever(const TrainPosition& at) const;
  void pin_those_there();
  void note_failure(const std::string& error);
  void prune();
  bool is_due(double count, Interval::Unit unit) const;
  bool must_stop() const;
  void during_validation(const TrainPosition& at);
  void during_evaluation();
  [[noreturn]] void stop(const TrainPosition& at);
  void report_place(const TrainPosition& at);
  void watch_best(const Logs& logs);
  void link_best(const TrainState& state);
  bool copy_state();
  void warn_of_waiting(const std::string& why);

  Engine& engine_;
  const Config& config_;
  CheckpointerOptions options_;
  std::string folder_;
  Coordinator alone_;
  Coordinator& coordinator_;
  std::unique_ptr<CheckpointLock> lock_;
  Snapshot snapshot_;
  std::vector<Hook*> states_;

  CheckpointNotes notes_;  // of the save in flight
  std::future<SaveResult> saving_;
  std::atomic<bool> is_committing_{false};  // all processes wrote their parts
  int64_t equal_at_ = -1;                   // step at which all processes had the same
  double blocked_ = 0;                      // seconds that the steps waited for it
  bool waits_for_saves_ = false;            // for lack of memory, as the user knows

  TrainState state_;  // best, cursor
  std::string monitor_;
  bool larger_is_better_ = false;
  bool new_best_ = false;   // the epoch that ended is the best
  double linked_best_ = 0;  // of the checkpoint that the link `best` names
  int64_t linked_step_ = -1;

  int64_t last_saved_ = -1;  // step
  int64_t last_failed_ = -1;
  TrainPosition end_;  // of fit
  int64_t resumed_from_ = -1;
  std::vector<int64_t> pinned_;  // what checkpoint.keep_every keeps
  int failures_ = 0;             // in a row
  std::string last_error_;
  double last_save_ended_ = 0, save_seconds_ = 0;
  double last_step_ = 0, longest_step_ = 0;
  bool asked_ = false;  // a signal asked for a checkpoint
  bool due_ = false;    // one was due while the epoch's last step was done
  std::optional<HeartbeatMonitor::Hook> on_abort_;
};

}  // namespace meshtrain
