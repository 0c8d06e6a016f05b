#include "train/replay_stop.h"

namespace meshtrain {

int64_t ReplayStopper::steps_until_sync(const TrainPosition& at) const {
  const int64_t left = stop_.at.step - at.step;
  return left > 0 ? left : Hook::steps_until_sync(at);
}

bool ReplayStopper::needs_sync(const TrainPosition& at, bool /*last*/) {
  return is_goal(at);
}

void ReplayStopper::on_sync(const TrainPosition& at, bool /*last*/) {
  end_at(at);
}

void ReplayStopper::on_pass_step(const PassPosition& position, const StepRunner& /*runner*/) {
  if (position.pass == Pass::kValidation && position.at.epoch_trained) {
    end_at(position.at);
  }
}

void ReplayStopper::on_epoch_boundary(const TrainPosition& next, const Logs& /*logs*/) {
  end_at(next);
}

bool ReplayStopper::is_goal(const TrainPosition& at) const {
  const TrainPosition& goal = stop_.at;
  return at.step == goal.step && at.epoch == goal.epoch && at.batch == goal.batch &&
         at.epoch_trained == goal.epoch_trained;
}

void ReplayStopper::end_at(const TrainPosition& at) {
  if (!is_goal(at)) {
    return;
  }
  if (const std::string error = saver_.save_as(stop_.save_as, at); !error.empty()) {
    throw RuntimeFailure(ExitCode::kWriteFailed, error);
  }
  throw ReplayEnded();
}

}  // namespace meshtrain
