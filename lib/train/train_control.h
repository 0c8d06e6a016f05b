// What may act on training between two steps: saving, stopping.
#pragma once

#include <cstdint>
#include <string>

#include "engine/logs.h"

namespace meshtrain {

// Called by Trainer::fit between steps. A function that throws ends the run there; what was done
// before is as `at` says.
class TrainControl {
 public:
  virtual ~TrainControl() = default;
  // Before the first step.
  virtual void on_fit_begin(const TrainPosition& at) = 0;
  // How many steps may follow `at` before wants_turn() must be called: at least 1. Steps in between
  // may be left out.
  virtual int64_t steps_to_turn(const TrainPosition& /*at*/) const { return 1; }
  // After a step, which may not be computed yet; `last` when it was the epoch's. Whether
  // after_step() must be called before the next one: it is when all losses up to here are known,
  // and none of them ended the run.
  virtual bool wants_turn(const TrainPosition& at, bool last) = 0;
  virtual void after_step(const TrainPosition& at, bool last) = 0;
  // During the validation of an epoch, which changes nothing that is saved.
  virtual void during_validation(const TrainPosition& at) = 0;
  // The epoch is over; `at` is the beginning of the next, `logs` those of the epoch.
  virtual void after_epoch(const TrainPosition& at, const Logs& logs) = 0;
  // After the last epoch, before the averages of an EMA take the weights' place.
  virtual void on_fit_end(const TrainPosition& at) = 0;
  // During the evaluation after fit.
  virtual void during_evaluation() = 0;
  // A callback wants all of the state as a checkpoint at `path`, in place of one that is there.
  // Returns why it was not saved; empty when it was.
  virtual std::string save_to(const std::string& path, const TrainPosition& at) = 0;
};

// Something whose state must survive a restart: a callback's best value, patience, ...
class Persistent {
 public:
  virtual ~Persistent() = default;
  virtual std::string state_name() const = 0;  // one per run: "EarlyStopping/val_loss"
  virtual std::string save_state() const = 0;  // JSON
  virtual void load_state(const std::string& json) = 0;
  // After load_state(), where only a part of the weights is that of the checkpoint: what the state
  // says of the model (best values, copies of its weights) is of another one.
  virtual void forget_model() {}
};

}  // namespace meshtrain
