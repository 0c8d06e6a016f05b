// Makes the states of stateful layers zeros, as users of Keras do with reset_states(): Keras itself
// never does.
#pragma once

#include "train/callbacks/callback.h"

namespace meshtrain {

class ResetStates : public Callback {
 public:
  ResetStates(const ResetStatesOptions& options, CallbackContext& context, std::string state_name)
      : Callback(context, std::move(state_name)), options_(options) {}

  void on_epoch_begin(const EpochStart& start) override;
  void on_pass_begin(const PassPosition& position) override;

 private:
  void reset();

  ResetStatesOptions options_;
};

}  // namespace meshtrain
