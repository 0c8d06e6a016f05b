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

}  // namespace meshtrain
