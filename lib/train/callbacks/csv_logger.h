// Keras' CSVLogger, and the run's own metrics.csv.
#pragma once

#include <memory>
#include <vector>

#include "record/line_log.h"
#include "train/callbacks/callback.h"

namespace meshtrain {

class CsvLogger : public Callback {
 public:
  CsvLogger(const CsvLoggerOptions& options, CallbackContext& context, std::string state_name);

  // Throws FileError (exit 74).
  void on_train_begin(const TrainPosition& at) override;
  void on_epoch_end(EpochReport& report) override;
  void on_train_end() override;
  void sync() override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;

 private:
  void write_row(const std::vector<std::string>& fields);
  void cut_back(int64_t epoch) const;
  void warn_of_left_out(const Logs& logs);

  std::string name_, path_;
  char separator_;
  bool append_;
  std::unique_ptr<LineLog> file_;
  std::vector<std::string> keys_;  // columns after `epoch`; empty until the first epoch ends
  bool has_header_ = false;
  int64_t num_bytes_ = 0;  // of the file up to its last row
  bool resumed_ = false;   // the three before are those of a checkpoint
  bool old_keys_ = false;  // the columns are those of a checkpoint
  bool is_named_ = false;  // the file's name is on the disk
};

}  // namespace meshtrain
