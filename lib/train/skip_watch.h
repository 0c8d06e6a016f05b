// SkipWatch: warns when a loss scale made most steps of an epoch change nothing.
#pragma once

#include <functional>
#include <string>

#include "engine/hook.h"

namespace meshtrain {

// For runs whose optimizer scales the loss. `scale_path`: the variable that holds the scale. Says
// one thing at most.
class SkipWatch : public Hook {
 public:
  SkipWatch(const StepRunner& runner, std::string scale_path,
            std::function<void(const std::string& text)> warn)
      : runner_(runner), scale_path_(std::move(scale_path)), warn_(std::move(warn)) {}

  void on_train_begin(const TrainPosition& position) override;
  void on_train_step(const TrainPosition& position, const StepRunner& runner) override;
  void on_epoch_end(EpochReport& report) override;

 private:
  const StepRunner& runner_;
  std::string scale_path_;
  std::function<void(const std::string&)> warn_;
  int64_t before_ = 0;  // iterations of the optimizer at the epoch's begin, or at the resume
  int64_t steps_ = 0;   // of this epoch, since then
  bool has_warned_ = false;
  bool is_resumed_ = false;
  bool begins_within_epoch_ = false;  // of the first epoch: the run was resumed there
};

}  // namespace meshtrain
