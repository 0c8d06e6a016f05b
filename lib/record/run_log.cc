#include "record/run_log.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "record/progress.h"

namespace meshtrain {
namespace {

std::string logs_text(const Logs& logs) {
  std::string out;
  for (const auto& [name, value] : logs) {
    out += fmt::format(" {} {}", name, progress_number(value, false));
  }
  return out;
}

}  // namespace

RunLog::RunLog(std::string path, LineLog::OnTrouble on_trouble)
    : log_(std::move(path), std::move(on_trouble), true) {}

void RunLog::start(const RunInfo& info) {
  work_ = info.work;
  std::string mesh;
  for (size_t i = 0; i < info.mesh_shape.size(); ++i) {
    mesh += fmt::format(" {}={}", info.axis_names[i], info.mesh_shape[i]);
  }
  line(fmt::format("start meshtrain {} {}, mesh{}{}", info.version, info.config,
                   mesh.empty() ? " of one device" : mesh,
                   info.resumed_from.empty()
                       ? ""
                       : fmt::format(", resumed from {}: {}", info.resumed_from, info.resumed_at)));
}

void RunLog::saved(std::string_view text) {
  line(text);
}

void RunLog::end(int exit_code, std::string_view message) {
  line(fmt::format("end exit code {}{}{}", exit_code, message.empty() ? "" : ": ", message));
}

void RunLog::on_epoch_end(EpochReport& report) {
  line(fmt::format("epoch {}{}{}", report.epoch, logs_text(report.logs),
                   rates_text(work_, report.seconds_per_step())));
}

void RunLog::on_pass_end(const PassPosition& position, const EvaluateReport& report) {
  if (position.is_within_epoch()) {
    line(fmt::format("validation step {} of epoch {}{}", position.at.batch, position.at.epoch + 1,
                     logs_text(validation_logs(report.logs))));
  } else if (position.pass == Pass::kEvaluation) {
    line(fmt::format("evaluate{}", logs_text(report.logs)));
  }
}

void RunLog::on_stop(const StopReport& report) {
  stopped_ = stop_text(report);
  line("stop " + stopped_);
}

void RunLog::on_warning(const std::string& text) {
  line("warning " + text);
}

void RunLog::line(std::string_view text) {
  std::string out = fmt::format("{} {}", utc_time_ms(), text);
  for (char& c : out) {
    c = c == '\n' ? ' ' : c;
  }
  log_.append(out);
}

std::string utc_time_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<time_t>(ms / 1000);
  tm parts = {};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     ms % 1000);
}

}  // namespace meshtrain
