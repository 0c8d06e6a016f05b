// Keras' SwapEMAWeights: evaluation sees the averages of the weights that the optimizer keeps.
//
// A checkpoint may be made while they are swapped; its state says so, and the run that resumes from
// it swaps them back in time.
#pragma once

#include "train/callbacks/callback.h"

namespace meshtrain {

class SwapEmaWeights : public Callback {
 public:
  SwapEmaWeights(const SwapEmaOptions& options, CallbackContext& context, std::string state_name)
      : Callback(context, std::move(state_name)), swaps_on_epoch_(options.swap_on_epoch) {}

  void on_epoch_begin(const EpochStart& start) override;
  void on_pass_begin(const PassPosition& position) override;
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override;
  void on_epoch_end(EpochReport& report) override;
  void before_finalize() override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;

  // Brings the weights back to their place where this state says that averages are there.
  static void undo(const std::string& json, StepRunner& runner);

 private:
  void have_averages(bool wanted);

  bool swaps_on_epoch_;
  bool swapped_ = false;  // the averages are in the weights' place
};

}  // namespace meshtrain
