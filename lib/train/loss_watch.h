// LossWatch: warns when the training loss does not change, or grows far above its first value.
#pragma once

#include <functional>
#include <string>

#include "engine/hook.h"

namespace meshtrain {

// Judges runs from their first epoch on; says one thing at most.
class LossWatch : public Hook {
 public:
  explicit LossWatch(std::function<void(const std::string& text)> warn) : warn_(std::move(warn)) {}

  void on_epoch_end(EpochReport& report) override;

 private:
  std::function<void(const std::string&)> warn_;
  double first_ = 0;    // loss of the first epoch
  double largest_ = 0;  // difference from it, relative
  bool judges_ = false, has_warned_ = false;
};

}  // namespace meshtrain
