// ProfileHook: writes the profile of a run's first steps as soon as it is whole.
#pragma once

#include <functional>
#include <string>

#include "engine/engine.h"
#include "engine/hook.h"
#include "plan/plan_summary.h"
#include "record/run_dir.h"

namespace meshtrain {

// Writes profile/profile.json and profile/trace.json of the run's folder and prints the longest
// kernels. A run that ends before writes the steps it has.
class ProfileHook : public Hook {
 public:
  // `writes`: this process writes the run's files, of its own steps.
  ProfileHook(Engine& engine, const PlanSummary& plan, const RunDir& run, bool writes,
              std::function<void(const std::string& text)> print)
      : engine_(engine), plan_(plan), run_(run), writes_(writes), print_(std::move(print)) {}

  void on_train_step(const TrainPosition& position, const StepRunner& runner) override;
  void on_train_end() override;

 private:
  void write();

  Engine& engine_;
  const PlanSummary& plan_;
  const RunDir& run_;
  bool writes_, is_written_ = false;
  std::function<void(const std::string&)> print_;
};

}  // namespace meshtrain
