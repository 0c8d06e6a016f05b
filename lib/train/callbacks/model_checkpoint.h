// Keras' ModelCheckpoint. By the end of its path it writes a model (.keras, .weights.h5,
// .safetensors) or a checkpoint of everything in a folder, each whole or not at all.
#pragma once

#include "config/file_template.h"
#include "config/interval.h"
#include "train/callbacks/monitor.h"

namespace meshtrain {

class ModelCheckpoint : public Callback {
 public:
  ModelCheckpoint(const ModelCheckpointOptions& options, CallbackContext& context,
                  std::string state_name);

  // What cannot be written is a warning, or with `checkpoint.on_error: stop` FileError (exit 74).
  void on_train_begin(const TrainPosition& at) override;
  int64_t steps_until_sync(const TrainPosition& at) const override;
  void on_train_step(const TrainPosition& at, const StepRunner& runner) override;
  void on_epoch_end(EpochReport& report) override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;
  void forget_model() override { monitor_.forget_best(); }

 private:
  bool is_wanted(int64_t epoch, const Logs& logs, const std::string& path);
  void save(int64_t epoch, std::optional<int64_t> batch, const Logs& logs);
  void finish(int64_t epoch, const std::string& path, const std::string& error);
  void prune();

  std::string filepath_;
  FileTemplate path_;
  Monitor monitor_;
  Interval every_;
  int64_t keep_ = 0;  // 0: all
  bool verbose_, best_only_;
  int64_t batches_ = 0;  // since the last save by batches
  int64_t steps_ = 0;    // since the run began
  double last_save_ = 0;
  std::vector<std::string> files_;  // of `keep`, oldest first, as the template gives them
};

// The newest model of a ModelCheckpoint with `restore`: that of the largest epoch in the folder of
// its filepath; for a relative path the folder of the newest run below `runs` (runs/NAME) that has
// one. Nothing when there is none.
std::optional<std::string> newest_model(const ConfigObject& callback, const std::string& runs);

}  // namespace meshtrain
