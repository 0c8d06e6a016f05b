// ReplayStopper: ends a run at a given position, to replay a part of another run.
#pragma once

#include <string>

#include "train/checkpointer.h"

namespace meshtrain {

struct ReplayStop {
  TrainPosition at;
  std::string save_as;  // path of the checkpoint of that position
};
// The position was reached, and the checkpoint is written.
class ReplayEnded : public Error {
 public:
  ReplayEnded() : Error(ExitCode::kOk, "reached") {}
};

// Saves and ends the run at its place, before the Checkpointer acts there.
class ReplayStopper : public Hook {
 public:
  ReplayStopper(Checkpointer& saver, const ReplayStop& stop) : saver_(saver), stop_(stop) {}

  int64_t steps_until_sync(const TrainPosition& at) const override;
  bool needs_sync(const TrainPosition& at, bool last) override;
  void on_sync(const TrainPosition& at, bool last) override;
  void on_pass_step(const PassPosition& position, const StepRunner& runner) override;
  void on_epoch_boundary(const TrainPosition& next, const Logs& logs) override;

 private:
  bool is_goal(const TrainPosition& at) const;
  void end_at(const TrainPosition& at);

  Checkpointer& saver_;
  ReplayStop stop_;
};

}  // namespace meshtrain
