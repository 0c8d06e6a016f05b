// Keras' SwapEMAWeights: evaluation sees the averages of the weights that the optimizer keeps.
//
// A checkpoint may be made while they are swapped; its state says so, and the run that goes on from
// it swaps them back in time.
#pragma once

#include "train/callbacks/callback.h"

namespace meshtrain {

class SwapEmaWeights : public Callback {
 public:
  SwapEmaWeights(const ConfigObject& object, CallbackContext& context, std::string state_name)
      : Callback(context, std::move(state_name)),
        swaps_on_epoch_(object.boolean("swap_on_epoch")) {}

  void on_epoch_begin(int64_t epoch) override;
  void on_test_begin() override;
  void on_test_end(const Logs& logs) override;
  void on_epoch_end(int64_t epoch, Logs& logs) override;
  void on_epochs_end() override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;

  // Whether the state of the callback `name` says that averages are in the weights' place.
  static bool has_swapped(const std::string& name, const std::string& json);

 private:
  void have_averages(bool wanted);

  bool swaps_on_epoch_;
  bool swapped_ = false;  // the averages are in the weights' place
};

}  // namespace meshtrain
