// Trainer: Keras' fit, evaluate and predict over host datasets (trainers/trainer.py).
//
// The trainer knows the order of things; what they look like is up to its observers (the console,
// the run directory), which are called in the order they were added.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "train/batch_reader.h"
#include "train/callbacks/callback_list.h"
#include "train/coordinator.h"
#include "train/progress.h"
#include "train/step_runner.h"
#include "train/train_control.h"

namespace meshtrain {

struct EpochReport {
  int64_t epoch = 0;         // from 1
  int64_t epochs = 0;        // Keras' `epochs`: the last one's number
  int64_t steps = 0;         // done
  double seconds = 0;        // validation included
  double train_seconds = 0;  // the steps alone
  Logs logs;  // sorted training values, then sorted validation values with "val_" before them
  LogLists lists = {};  // under the same names
};

struct EvaluateReport {
  int64_t steps = 0;
  double seconds = 0;
  Logs logs;
  LogLists lists = {};
};

// Each function does nothing unless overridden.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_epoch_begin(int64_t /*epoch*/, int64_t /*epochs*/, int64_t /*steps*/) {}
  // `step` counts from 1 in the epoch; the runner has its loss. Where it runs ahead, its other
  // values may be those of a later step.
  virtual void on_train_step(int64_t /*epoch*/, int64_t /*step*/, const StepRunner&) {}
  virtual void on_epoch_end(const EpochReport&) {}
  virtual void on_evaluate_begin(int64_t /*steps*/) {}  // not for validation inside fit
  virtual void on_evaluate_step(int64_t /*step*/, const StepRunner&) {}
  virtual void on_evaluate_end(const EvaluateReport&) {}
  virtual void on_predict_begin(int64_t /*steps*/) {}
  virtual void on_predict_step(int64_t /*step*/) {}
  virtual void on_predict_end(int64_t /*steps*/) {}
  virtual void on_warning(const std::string& /*text*/) {}
  virtual void on_message(const std::string& /*text*/) {}  // of a callback, line feeds included
};

// Which batches epoch `epoch` (from 0) trains on. With steps_per_epoch the batches of one pass over
// the data are dealt out to several epochs, and the last of these ends short where the data ends:
// 5 batches at 3 steps an epoch are 3, 2, 3, 2, ... A pure function of the epoch.
struct EpochPlan {
  int64_t pass = 0;         // over the data: decides the order of samples
  int64_t first_batch = 0;  // in that pass
  int64_t steps = 0;        // batches of this epoch
  int64_t target = 0;       // steps shown
  bool ran_out = false;     // ends short of steps_per_epoch
};
EpochPlan plan_epoch(const FitConfig& fit, int64_t num_batches, int64_t epoch);

// Batches of one pass over `num_samples`; the incomplete last one counts unless `drop_last`.
int64_t count_batches(int64_t num_samples, int64_t batch_size, bool drop_last);

// Throws ConfigError E316 when a batch is larger than the data, or when dropping the incomplete one
// leaves nothing. Trainer::fit begins with it; a verb may ask before it leaves anything behind.
void check_batches(const Config& config, const Dataset& train);

class Trainer {
 public:
  Trainer(StepRunner& runner, const Config& config, Clock now);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void add_observer(TrainObserver& observer) { observers_.push_back(&observer); }
  // Act before the observers see what happened.
  void set_callbacks(CallbackList& callbacks) { callbacks_ = &callbacks; }
  // Decides between steps about saving and stopping; without one a signal ends the run.
  void set_control(TrainControl& control) { control_ = &control; }
  // Of the runner's processes; without one it is alone.
  void set_coordinator(Coordinator& coordinator) { coordinator_ = &coordinator; }
  // fit goes on here instead of at initial_epoch; the runner must be in the state of that place.
  void start_at(TrainPosition position) { start_ = std::move(position); }

  // Trains epochs initial_epoch + 1 ... epochs. `validation` may be null. Throws ConfigError E316
  // as check_batches does, E501 (exit 5) at the first loss that is not finite, StopRequested after
  // the last step that was begun when a signal came.
  void fit(const Dataset& train, const Dataset* validation);
  // Loss and metrics over `dataset` in file order. `steps` 0: all batches.
  Logs evaluate(const Dataset& dataset, int64_t batch_size, int64_t steps);
  // One tensor per model output, (samples, ...).
  std::vector<HostTensor> predict(const Dataset& dataset, int64_t batch_size);

 private:
  // The rest of the epoch at `at`, which moves along.
  EpochReport train_epoch(const Dataset& train, BatchReader& batches, const EpochPlan& plan,
                          TrainPosition& at);
  int64_t steps_together(const Dataset& train, const EpochPlan& plan,
                         const TrainPosition& at) const;
  // Begins `count` steps, and does what follows each of those that must be seen now.
  void train_together(BatchReader& batches, int64_t count, const EpochPlan& plan,
                      TrainPosition& at);
  // What follows each step up to `at`, but the newest `but`.
  void see_steps(const TrainPosition& at, int64_t but);
  void validate(const Dataset& validation, const TrainPosition& at, EpochReport& report);
  bool validates_after(int64_t epoch) const;
  void check_loss(int64_t epoch, int64_t step) const;
  void save_states(const TrainPosition& at);  // those that callbacks asked for
  // Runs the batches; `after_step(step)` follows each.
  int64_t run_tests(const Dataset& dataset, int64_t batch_size, int64_t steps,
                    const std::function<void(int64_t)>& after_step);

  StepRunner& runner_;
  const Config& config_;
  Clock now_;
  std::vector<TrainObserver*> observers_;
  CallbackList* callbacks_ = nullptr;
  TrainControl* control_ = nullptr;
  Coordinator alone_;
  Coordinator* coordinator_ = &alone_;
  std::optional<TrainPosition> start_;
  // Steps before the position that are begun and were not seen: loss, callbacks, observers. A
  // runner that runs ahead is given the next steps first, so that its device has work while those
  // before are looked at. Where somebody acts (a turn, the epoch's end) there are none.
  int64_t unseen_ = 0;
};

}  // namespace meshtrain
