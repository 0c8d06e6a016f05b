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
#include "engine/agreement.h"
#include "engine/batch_reader.h"
#include "engine/epoch_plan.h"
#include "engine/logs.h"
#include "engine/observer.h"
#include "engine/step_runner.h"
#include "train/callbacks/callback_list.h"
#include "train/train_control.h"

namespace meshtrain {

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
  void set_agreement(Agreement& agreement) { agreement_ = &agreement; }
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
  Agreement alone_;
  Agreement* agreement_ = &alone_;
  std::optional<TrainPosition> start_;
  // Steps before the position that are begun and were not seen: loss, callbacks, observers. A
  // runner that runs ahead is given the next steps first, so that its device has work while those
  // before are looked at. Where somebody acts (a turn, the epoch's end) there are none.
  int64_t unseen_ = 0;
};

}  // namespace meshtrain
