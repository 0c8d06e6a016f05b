// Keras' ReduceLROnPlateau.
#pragma once

#include "train/callbacks/monitor.h"

namespace meshtrain {

class ReduceLROnPlateau : public Callback {
 public:
  ReduceLROnPlateau(const ReduceLROnPlateauOptions& options, CallbackContext& context,
                    std::string state_name);

  void on_epoch_end(EpochReport& report) override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;
  void forget_model() override;

 private:
  bool reduce(int64_t epoch);

  Monitor monitor_;
  double factor_, min_lr_;
  int64_t patience_, cooldown_;
  bool verbose_;
  int64_t wait_ = 0;
  int64_t cooldown_left_ = 0;
};

}  // namespace meshtrain
