#include "train/callbacks/run_command_callback.h"

#include <cmath>

#include "base/json.h"
#include "base/run_command.h"
#include "base/text.h"
#include "comm/environment.h"

namespace meshtrain {
namespace {

// JSON has no NaN: such a log is a null.
std::string report_json(const EpochReport& report, const std::string& name,
                        const std::string& run_dir) {
  nlohmann::ordered_json logs = nlohmann::ordered_json::object();
  for (const auto& [key, value] : report.logs) {
    logs[key] = std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr;
  }
  return nlohmann::ordered_json{{"event", "epoch"},      {"name", name},
                                {"epoch", report.epoch}, {"epochs", report.epochs},
                                {"steps", report.steps}, {"seconds", report.seconds},
                                {"run_dir", run_dir},    {"logs", logs}}
             .dump() +
         "\n";
}

}  // namespace

void RunCommand::on_epoch_end(EpochReport& report) {
  if (!context().writes) {
    return;
  }
  constexpr double kToEnd = 60;  // once it is killed
  const auto announced = context().announce("running a command", options_.timeout + kToEnd);
  const std::string failure =
      run_command(options_.command, report_json(report, options_.name, context().run_dir),
                  options_.timeout, launch_variables());
  if (failure.empty()) {
    return;
  }
  const std::string message = fmt::format("command `{}` after epoch {}: {}",
                                          join(options_.command, " "), report.epoch, failure);
  if (options_.on_error == SaveFailure::kStop) {
    throw RuntimeFailure(ExitCode::kCheckFailed, message + ", and `on_error: stop` ends the run");
  }
  context().warn(message);
}

}  // namespace meshtrain
