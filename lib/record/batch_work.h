// BatchWork: what a training step computes, for rates beside its time: tokens a second, and MFU,
// the share of the devices' peak that the model's FLOPs reach.
#pragma once

#include <string>

namespace meshtrain {

// Of a whole batch, on all devices together.
struct BatchWork {
  double tokens = 0;  // 0: the model has no output for each token
  double flops = 0;
  double peak = 0;  // FLOP a second by the data sheet; 0: not known

  // 0 where it is not known.
  double tokens_per_second(double seconds_per_step) const {
    return seconds_per_step > 0 ? tokens / seconds_per_step : 0;
  }
  double mfu(double seconds_per_step) const {
    return seconds_per_step > 0 && peak > 0 ? flops / seconds_per_step / peak : 0;
  }
};

// " - 31,250 tokens/s - MFU 41.2%"; without what is not known.
std::string rates_text(const BatchWork& work, double seconds_per_step);

}  // namespace meshtrain
