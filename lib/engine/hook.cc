#include "engine/hook.h"

#include <fmt/format.h>

namespace meshtrain {

std::string stop_text(const StopReport& report) {
  return fmt::format("{} by {} after epoch {} of {}: {}{}",
                     report.was_stopped ? "stays stopped" : "stopped", report.by, report.epoch,
                     report.epochs, report.reason,
                     report.was_stopped ? "; to train on, give it " + report.cure : "");
}

}  // namespace meshtrain
