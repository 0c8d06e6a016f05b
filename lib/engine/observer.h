// TrainObserver: sees what a training does, and changes nothing.
#pragma once

#include <cstdint>
#include <string>

#include "engine/logs.h"
#include "engine/step_runner.h"

namespace meshtrain {

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

}  // namespace meshtrain
