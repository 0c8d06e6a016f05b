// Trainer: Keras' fit, evaluate and predict over host datasets (trainers/trainer.py).
//
// The trainer knows the order of things; what happens at its landmarks is up to the hooks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "engine/batch_reader.h"
#include "engine/coordinator.h"
#include "engine/epoch_plan.h"
#include "engine/hook.h"
#include "engine/logs.h"
#include "engine/step_runner.h"

namespace meshtrain {

// Whether this epoch, from 1, ends with a validation where there are data for it.
bool validates_after(const FitConfig& fit, int64_t epoch);

class Trainer {
 public:
  Trainer(StepRunner& runner, const Config& config, Clock now);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Hooks are called in this order: those that change logs go before those that show them.
  void add_hook(Hook& hook) { hooks_.push_back(&hook); }
  // Adds the hook that decides about saving and stopping, after all others. Without one a signal
  // ends the run.
  void add_saver(Hook& saver) {
    add_hook(saver);
    has_saver_ = true;
  }
  // Of the runner's processes; without one it is alone.
  void set_coordinator(Coordinator& coordinator) { coordinator_ = &coordinator; }
  // fit begins here instead of at initial_epoch; the runner must be in the state of that place.
  void start_at(TrainPosition position) { start_ = std::move(position); }

  // Trains epochs initial_epoch + 1 ... epochs. `validation` may be null. Throws ConfigError E316
  // as check_batches does, E501 (exit 5) at the first loss that is not finite, StopRequested after
  // the last step that was begun when a signal came.
  void fit(const Dataset& train, const Dataset* validation);
  // Loss and metrics over `dataset` in file order. `steps` 0: all batches.
  Logs evaluate(const Dataset& dataset, int64_t batch_size, int64_t steps);
  // Validates between two steps. Metrics are then those of the validation: the caller keeps those
  // of the epoch. `steps` 0: as many as fit.validation_steps.
  void validate_within_epoch(const Dataset& validation, const TrainPosition& at, int64_t steps);
  // One tensor per model output, (samples, ...).
  std::vector<HostTensor> predict(const Dataset& dataset, int64_t batch_size);

 private:
  // The rest of the epoch at `at`, which moves along.
  EpochReport train_epoch(const Dataset& train, BatchReader& batches, const EpochPlan& plan,
                          TrainPosition& at);
  int64_t steps_together(const Dataset& train, const EpochPlan& plan,
                         const TrainPosition& at) const;
  // Begins `count` steps, and retires those that must be retired now.
  void train_together(BatchReader& batches, int64_t count, const EpochPlan& plan,
                      TrainPosition& at);
  // Gives the hooks each step up to `at`, but the newest `in_flight`.
  void retire_steps(const TrainPosition& at, int64_t in_flight);
  void validate(const Dataset& validation, const TrainPosition& at, EpochReport& report);
  void warn_of_end(const EpochPlan& plan, int64_t epoch) const;  // of the data, within the epoch
  std::optional<StopReport> stop_report() const;                 // of the first hook that stops
  void check_loss(int64_t epoch, int64_t step) const;
  // Runs the batches, of which there are `position.steps`.
  EvaluateReport run_tests(const Dataset& dataset, int64_t batch_size, PassPosition position);
  // What follows a step of a pass.
  void end_pass_step(const PassPosition& position);

  StepRunner& runner_;
  const Config& config_;
  Clock now_;
  std::vector<Hook*> hooks_;
  bool has_saver_ = false;
  Coordinator alone_;
  Coordinator* coordinator_ = &alone_;
  std::optional<TrainPosition> start_;
  // Steps before the position that are begun and were not given to hooks. A runner that runs ahead
  // is given the next steps first, so that its device has work meanwhile. At a sync and at an
  // epoch's end there are none.
  int64_t in_flight_ = 0;
};

}  // namespace meshtrain
