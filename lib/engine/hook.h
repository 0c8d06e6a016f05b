// Hook: is called at fixed points of training (Keras 3 callbacks/callback.py). Callbacks, the
// console, logs and checkpoint saving are hooks. The trainer calls all hooks in the order in which
// they were added. Each function does nothing unless overridden. An exception ends the run.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "engine/logs.h"
#include "engine/step_runner.h"

namespace meshtrain {

struct EpochStart {
  int64_t epoch = 0;        // from 0
  int64_t epochs = 0;       // Keras' `epochs`: the last one's number, from 1
  int64_t steps = 0;        // shown
  bool is_resumed = false;  // the run was resumed within the epoch: its first steps are done
  int64_t done = 0;         // those steps
};

// A pass over data that trains nothing.
enum class Pass : uint8_t { kValidation, kEvaluation, kPrediction };

struct PassPosition {
  Pass pass = Pass::kEvaluation;
  int64_t step = 0;       // done
  int64_t steps = 0;      // in all
  TrainPosition at = {};  // of the training, in kValidation

  // A validation between two steps, not behind the last of an epoch.
  bool is_within_epoch() const { return pass == Pass::kValidation && !at.epoch_trained; }
};

// Why training ends before its last epoch.
struct StopReport {
  std::string by;            // state_name() of the hook: "EarlyStopping"
  std::string reason;        // "`val_loss` has not improved for 2 epochs"
  int64_t epoch = 0;         // the last that was trained, from 1
  int64_t epochs = 0;        // that the config asks for
  int64_t best_epoch = 0;    // from 1; 0: not known
  std::string cure;          // what lets it train on
  bool was_stopped = false;  // before this start: nothing was trained
};
// "stopped by EarlyStopping after epoch 2 of 9: ...", one line.
std::string stop_text(const StopReport& report);

class Hook {
 public:
  virtual ~Hook() = default;

  // Before the first step, after load_state() where the run is resumed; `position` is where it
  // begins.
  virtual void on_train_begin(const TrainPosition& /*position*/) {}
  virtual void on_epoch_begin(const EpochStart& /*start*/) {}
  // After each step, in order: `position` is that after it, and the runner has its loss, finite
  // or not. When the runner is asynchronous, its other values may be those of a later step.
  virtual void on_train_step(const TrainPosition& /*position*/, const StepRunner& /*runner*/) {}
  // Returns after how many steps beyond `position`, the last on_train_step(), the hook needs the
  // model in exactly the state after that step: at least 1.
  virtual int64_t steps_until_sync(const TrainPosition& /*position*/) const {
    return std::numeric_limits<int64_t>::max();
  }
  // After steps that may not be complete yet; `last` when they end the epoch. When it returns true,
  // on_sync() follows once all losses up to `position` are known, unless one of them ends the run.
  virtual bool needs_sync(const TrainPosition& /*position*/, bool /*last*/) { return false; }
  virtual void on_sync(const TrainPosition& /*position*/, bool /*last*/) {}
  // All hooks have been called at `position`: their states are consistent and may be saved.
  virtual void after_hooks(const TrainPosition& /*position*/) {}

  // Around a validation, an evaluation or a prediction, and after each of its steps. A validation
  // that was interrupted begins anew when the run is resumed.
  virtual void on_pass_begin(const PassPosition& /*position*/) {}
  virtual void on_pass_step(const PassPosition& /*position*/, const StepRunner& /*runner*/) {}
  virtual void on_pass_end(const PassPosition& /*position*/, const EvaluateReport& /*report*/) {}

  // Logs that are added or changed go to all hooks that follow.
  virtual void on_epoch_end(EpochReport& /*report*/) {}
  // After on_epoch_end() and after_hooks() of all; `next` is the beginning of the next epoch.
  virtual void on_epoch_boundary(const TrainPosition& /*next*/, const Logs& /*logs*/) {}
  // Returns the reason when there shall be no next epoch; the trainer fills in epoch and epochs.
  virtual std::optional<StopReport> stops_training() const { return std::nullopt; }
  // A hook stopped the training before its last epoch. Called before on_fit_end().
  virtual void on_stop(const StopReport& /*report*/) {}
  // After the last epoch, before averages replace the weights: first on_fit_end() of all hooks,
  // then before_finalize().
  virtual void on_fit_end(const TrainPosition& /*position*/) {}
  virtual void before_finalize() {}
  // After averages replaced the weights.
  virtual void on_train_end() {}
  virtual void on_warning(const std::string& /*text*/) {}

  // State that survives a restart. The name is one per run ("EarlyStopping", "CSVLogger-2"); "": no
  // state.
  virtual std::string state_name() const { return ""; }
  virtual std::string save_state() const { return "{}"; }  // JSON
  virtual void load_state(const std::string& /*json*/) {}
  // After load_state(), when some weights are not those of the checkpoint: best values and copies
  // of weights in the state belong to another model.
  virtual void forget_model() {}
  // Syncs growing files to the disk before a checkpoint counts them as written. Called by another
  // thread.
  virtual void sync() {}
};

}  // namespace meshtrain
