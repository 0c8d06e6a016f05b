// Leaving a run off at a given place, for a replay of what another run did.
#pragma once

#include <string>

#include "train/checkpointer.h"

namespace meshtrain {

struct StopPoint {
  TrainPosition at;
  std::string save_as;  // the checkpoint of that moment
};
// It was reached, and the checkpoint is written.
class StopPointReached : public Error {
 public:
  StopPointReached() : Error(ExitCode::kOk, "reached") {}
};

// Passes everything on, and ends the run where it is told to.
class StopAt : public TrainControl {
 public:
  StopAt(Checkpointer& inner, const StopPoint& stop) : inner_(inner), stop_(stop) {}

  void on_fit_begin(const TrainPosition& at) override { inner_.on_fit_begin(at); }
  int64_t steps_to_turn(const TrainPosition& at) const override;
  bool wants_turn(const TrainPosition& at, bool last) override;
  void after_step(const TrainPosition& at, bool last) override;
  void during_validation(const TrainPosition& at) override;
  void after_epoch(const TrainPosition& at, const Logs& logs) override;
  void on_fit_end(const TrainPosition& at) override { inner_.on_fit_end(at); }
  void during_evaluation() override { inner_.during_evaluation(); }
  std::string save_to(const std::string& path, const TrainPosition& at) override {
    return inner_.save_to(path, at);
  }

 private:
  bool is_goal(const TrainPosition& at) const;
  void end_at(const TrainPosition& at);

  Checkpointer& inner_;
  const StopPoint stop_;
};

}  // namespace meshtrain
