// TensorBoard: event files of scalars, histograms and the graph (Keras 3
// callbacks/tensorboard.py), in `log_dir`/train and `log_dir`/validation.
//
//   train       epoch_<log>, epoch_learning_rate, epoch_steps_per_second: step = epoch from 0
//               batch_<log>, batch_steps_per_second: step = batches since the start
//               <weight path>/histogram: step = epoch from 0
//               keras (the model as Keras' JSON), config, and the graph of the layers
//   validation  epoch_<log> without val_; evaluation_<log>_vs_iterations: step = optimizer steps
//
// A resumed run cuts the files back to what they were at its checkpoint and continues in a new
// one, so that each step is there once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "record/tensorboard/event_file.h"
#include "train/callbacks/callback.h"

namespace meshtrain {

class TensorBoard : public Callback {
 public:
  TensorBoard(const TensorBoardOptions& options, CallbackContext& context, std::string name);

  void on_train_begin(const TrainPosition& at) override;
  void on_epoch_begin(const EpochStart& start) override;
  int64_t steps_until_sync(const TrainPosition& at) const override;
  void on_train_step(const TrainPosition& at, const StepRunner& runner) override;
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override;
  void on_epoch_end(EpochReport& report) override;
  void on_train_end() override;
  void sync() override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;

 private:
  // One of the two folders.
  struct Board {
    std::string folder;
    std::map<std::string, int64_t> files;  // earlier ones: name and size, at the checkpoint
    std::string name;                      // of the file that is written
    std::unique_ptr<EventFile> file;       // made when there is something to write
  };

  EventFile& open(Board& board);
  void cut_back(Board& board) const;
  std::string new_name(const Board& board) const;
  void write_model();

  int64_t histogram_freq_, update_freq_;  // update_freq: 0 for epochs
  bool write_graph_, write_steps_per_second_;
  bool shared_folder_;  // log_dir is outside the run's own
  std::string owner_;   // in the names of files, for that
  std::mutex mutex_;    // of the files, which sync() reads from another thread
  Board train_, validation_;
  int64_t step_ = 0;         // batches since the run began
  int64_t epoch_begin_ = 0;  // step_ then, or at the resume
  double epoch_started_ = 0, batch_started_ = 0;
};

}  // namespace meshtrain
