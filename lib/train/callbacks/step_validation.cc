#include "train/callbacks/step_validation.h"

#include "engine/rnn_states.h"
#include "exec/executor.h"
#include "train/trainer.h"

namespace meshtrain {

StepValidation::StepValidation(const StepValidationOptions& options, CallbackContext& context,
                               std::string state_name)
    : Callback(context, std::move(state_name)),
      every_(options.every),
      steps_(options.steps.value_or(0)) {}

int64_t StepValidation::steps_until_sync(const TrainPosition& at) const {
  return every_ - at.step % every_;
}

// The last step of an epoch has the epoch's own validation.
bool StepValidation::is_due(const TrainPosition& at, bool last) const {
  return at.step % every_ == 0 && !(last && validates_after(context().config.fit, at.epoch + 1));
}

bool StepValidation::needs_sync(const TrainPosition& at, bool last) {
  return is_due(at, last);
}

// Training and validation share the states of metrics and of stateful layers.
void StepValidation::on_sync(const TrainPosition& at, bool last) {
  if (!is_due(at, last)) {
    return;
  }
  Engine& engine = *context().engine;
  VariableValues kept = read_rnn_states(engine);
  for (const TrackedMetric& tracked : engine.setup().graphs().metrics()) {
    for (const int state : tracked.states) {
      kept.emplace_back(state, engine.store().read(state));
    }
  }
  context().validate(at, steps_);
  write_variables(engine, kept);
}

}  // namespace meshtrain
