#include "train/callbacks/step_validation.h"

#include "engine/engine.h"
#include "exec/executor.h"
#include "nn/recurrent.h"
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
  std::vector<std::pair<int, HostTensor>> kept;
  const auto keep = [&](int variable) {
    kept.emplace_back(variable, engine.store().read(variable));
  };
  for (const TrackedMetric& tracked : engine.setup().graphs().metrics()) {
    for (const int state : tracked.states) {
      keep(state);
    }
  }
  const std::vector<std::string> weights = engine.weight_paths();  // the first variables
  for (size_t w = 0; w < weights.size(); ++w) {
    if (is_rnn_state(weights[w])) {
      keep(static_cast<int>(w));
    }
  }
  context().validate(at, steps_);
  for (const auto& [variable, value] : kept) {
    engine.store().write(variable, value);
  }
}

}  // namespace meshtrain
