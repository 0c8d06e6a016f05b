#include "train/callbacks/reset_states.h"

#include "nn/recurrent.h"

namespace meshtrain {

void ResetStates::on_epoch_begin(const EpochStart& start) {
  if (options_.on_epoch_begin && !start.is_resumed) {
    reset();
  }
}

void ResetStates::on_pass_begin(const PassPosition& position) {
  if (options_.on_test_begin && position.pass != Pass::kPrediction) {
    reset();
  }
}

void ResetStates::reset() {
  StepRunner& runner = context().runner;
  for (const std::string& path : runner.weight_paths()) {
    if (is_rnn_state(path)) {
      const HostTensor state = runner.read_variable(path);
      runner.write_variable(path, HostTensor(state.dtype(), state.shape()));
    }
  }
}

}  // namespace meshtrain
