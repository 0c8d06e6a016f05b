#include "stop_at.h"

#include <algorithm>

namespace meshtrain {

int64_t StopAt::steps_to_turn(const TrainPosition& at) const {
  const int64_t left = stop_.at.step - at.step;
  const int64_t steps = inner_.steps_to_turn(at);
  return left > 0 ? std::min(left, steps) : steps;
}

bool StopAt::wants_turn(const TrainPosition& at, bool last) {
  const bool inner_wants = inner_.wants_turn(at, last);
  return inner_wants || is_goal(at);
}

void StopAt::after_step(const TrainPosition& at, bool last) {
  end_at(at);
  inner_.after_step(at, last);
}

void StopAt::during_validation(const TrainPosition& at) {
  end_at(at);
  inner_.during_validation(at);
}

void StopAt::after_epoch(const TrainPosition& at, const Logs& logs) {
  end_at(at);
  inner_.after_epoch(at, logs);
}

bool StopAt::is_goal(const TrainPosition& at) const {
  const TrainPosition& goal = stop_.at;
  return at.step == goal.step && at.epoch == goal.epoch && at.batch == goal.batch &&
         at.epoch_trained == goal.epoch_trained;
}

void StopAt::end_at(const TrainPosition& at) {
  if (!is_goal(at)) {
    return;
  }
  if (const std::string error = inner_.save_to(stop_.save_as, at); !error.empty()) {
    throw RuntimeFailure(ExitCode::kWriteFailed, error);
  }
  throw StopPointReached();
}

}  // namespace meshtrain
