#include "record/batch_work.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace meshtrain {

std::string rates_text(const BatchWork& work, double seconds_per_step) {
  std::string out;
  if (const double tokens = work.tokens_per_second(seconds_per_step); tokens > 0)
    out += fmt::format(" - {} tokens/s", format_thousands(std::llround(tokens)));
  if (const double mfu = work.mfu(seconds_per_step); mfu > 0)
    out += fmt::format(" - MFU {:.1f}%", mfu * 100);
  return out;
}

double seconds_per_step(const EpochReport& report) {
  return report.timed_steps > 0 ? report.train_seconds / static_cast<double>(report.timed_steps)
                                : 0;
}

bool is_within_epoch(const PassPosition& position) {
  return position.pass == Pass::kValidation && !position.at.epoch_trained;
}

Logs validation_logs(const Logs& logs) {
  Logs out;
  for (const auto& [name, value] : logs)
    out.emplace_back("val_" + name, value);
  return out;
}

}  // namespace meshtrain
