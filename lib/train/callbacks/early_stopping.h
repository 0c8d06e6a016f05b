// Keras' EarlyStopping. The best epoch's weights are variables of the engine, so that every
// checkpoint has them.
#pragma once

#include "train/callbacks/monitor.h"

namespace meshtrain {

class EarlyStopping : public Callback {
 public:
  EarlyStopping(const EarlyStoppingOptions& options, CallbackContext& context,
                std::string state_name);

  void on_train_begin(const TrainPosition& at) override;
  void on_epoch_end(EpochReport& report) override;
  std::optional<StopReport> stops_training() const override;
  void on_train_end() override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;
  void forget_model() override;

 private:
  void snapshot_weights();

  Monitor monitor_;
  int64_t patience_, start_from_epoch_;
  bool verbose_, restores_;
  std::optional<double> baseline_;
  int64_t wait_ = 0;
  int64_t stopped_epoch_ = 0;
  int64_t best_epoch_ = 0;
  bool has_weights_ = false;
  bool stops_ = false;
};

}  // namespace meshtrain
