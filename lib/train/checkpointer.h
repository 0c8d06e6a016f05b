// Checkpointer: the hook that saves a run and stops it. A SavePolicy decides when, an AsyncSaver
// writes, RunCheckpoints is the folder, a ReplicaCheck compares the processes. Each process of a
// run has a Checkpointer; all decide alike, by the step or by what they agreed upon in
// Coordinator::poll().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/hook.h"
#include "engine/rnn_states.h"
#include "train/async_saver.h"
#include "train/callbacks/callback.h"
#include "train/replica_check.h"
#include "train/run_checkpoints.h"
#include "train/save_policy.h"

namespace meshtrain {

struct CheckpointerOptions {
  std::string run_dir;    // its checkpoints/ is the folder
  CheckpointNotes notes;  // see RunCheckpoints
  Clock now;
  double started_at = 0;               // of the process, for run.max_time; on all that of rank 0
  Coordinator* coordinator = nullptr;  // of the engine's processes; null: one alone
  std::vector<bool> sees_folder;       // see AsyncSaverOptions
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
  // E113, E420, E421 (exit 74), E455 (exit 6).
  Checkpointer(Engine& engine, const Config& config, CheckpointerOptions options);

  // A hook whose state goes into every checkpoint. Add before resume().
  void add_state(Hook& hook) { checkpoints_.add_state(hook); }
  // The model was restored from this checkpoint; `own`: it is one of this folder, and newer ones
  // there (damaged, or of a past that is given up) are quarantined. Throws FileError.
  void resume(const CheckpointReader& reader, bool own);

  void on_train_begin(const TrainPosition& at) override;
  int64_t steps_until_sync(const TrainPosition& at) const override;
  bool needs_sync(const TrainPosition& at, bool last) override;
  void on_sync(const TrainPosition& at, bool last) override;
  void after_hooks(const TrainPosition& at) override;
  void on_pass_begin(const PassPosition& position) override;
  void on_pass_step(const PassPosition& position, const StepRunner& runner) override;
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override;
  void on_epoch_boundary(const TrainPosition& next, const Logs& logs) override;
  void on_fit_end(const TrainPosition& at) override;

  // Saves all of the state as a checkpoint at `path`, in place of one that is there. Returns why it
  // was not saved; empty when it was.
  std::string save_as(const std::string& path, const TrainPosition& at);

 private:
  void poll(Coordinator::Pace pace, uint64_t logs = 0);
  void report_status(const TrainPosition& at);
  void stop_if_asked(const TrainPosition& at);
  void stop_evaluation_if_asked();
  [[noreturn]] void save_and_stop(const TrainPosition& at, const std::string& why,
                                  const std::string& saved);

  void save(const TrainPosition& at, SavePolicy::WhenBusy when_busy);
  std::string save_now(const TrainPosition& at);
  void finish_save();
  void end_save(const FinishedSave& save);
  void check_result(const SaveResult& result, int64_t step, const std::string& folder);

  Engine& engine_;
  const Config& config_;
  CheckpointerOptions options_;
  Coordinator alone_;
  Coordinator& coordinator_;
  RunCheckpoints checkpoints_;
  SavePolicy policy_;
  ReplicaCheck replicas_;
  AsyncSaver saver_;
  TrainPosition end_;  // of fit
  // States of stateful layers at the begin of the pass in progress: a resumed run repeats it.
  VariableValues pass_states_;
  std::string last_error_;  // of the last save
  bool is_skip_said_ = false;
};

}  // namespace meshtrain
