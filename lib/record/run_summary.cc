#include "record/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/median.h"
#include "base/text.h"
#include "record/run_list.h"

namespace meshtrain {
namespace {

void find_best(const RunRecord& record, RunSummary& out) {
  double best = NAN;
  for (const RunEpoch& epoch : record.epochs) {
    const double* value = find_log(epoch.logs, out.monitor);
    if (value == nullptr || std::isnan(*value)) {
      continue;
    }
    if (std::isnan(best) || (out.larger_is_better ? *value > best : *value < best)) {
      best = *value;
      out.best_epoch = epoch.epoch;
      out.best_logs = epoch.logs;
    }
  }
}

}  // namespace

RunSummary summarize_run(const RunRecord& record) {
  const RunSession& last = record.sessions.back();
  RunSummary out;
  out.folder = record.folder;
  out.name = record.name;
  out.overrides = last.overrides;
  out.mesh = last.mesh;
  out.exit_code = last.exit_code;
  out.message = last.message;
  out.monitor = last.monitor;
  out.larger_is_better = last.larger_is_better;
  out.bytes_per_device = last.bytes_per_device;
  std::vector<double> times;
  for (const RunEpoch& epoch : record.epochs) {
    out.train_seconds += std::isnan(epoch.seconds) ? 0 : epoch.seconds;
    if (epoch.ms_per_step > 0) {
      times.push_back(epoch.ms_per_step);
    }
  }
  out.ms_per_step = median(times);
  if (!record.epochs.empty()) {
    out.epochs = record.epochs.back().epoch;
    out.logs = record.epochs.back().logs;
  }
  if (!record.evaluations.empty()) {
    out.evaluation = record.evaluations.back();
  }
  find_best(record, out);
  const nlohmann::json plan = parse_json(record.plan);
  if (plan.is_object() && plan.contains("memory")) {
    out.memory_per_device = plan["memory"].value("total", int64_t{0});
  }
  return out;
}

std::string run_state(const RunSummary& run) {
  if (!run.exit_code) {
    return run_use(run.folder) == RunUse::kUsed ? "running" : "no end recorded";
  }
  switch (*run.exit_code) {
    case static_cast<int>(ExitCode::kOk):
      return "finished";
    case static_cast<int>(ExitCode::kStopped):
      return "stopped";
    case static_cast<int>(ExitCode::kDiverged):
      return "diverged";
    default:
      return fmt::format("failed with exit code {}", *run.exit_code);
  }
}

std::string mesh_text(const std::vector<std::pair<std::string, int64_t>>& mesh) {
  std::vector<std::string> parts;
  for (const auto& [name, size] : mesh) {
    parts.push_back(fmt::format("{}={}", name, size));
  }
  return parts.empty() ? "1 device" : join(parts, " ");
}

const double* find_log(const Logs& logs, std::string_view name) {
  const auto found = std::find_if(logs.begin(), logs.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == logs.end() ? nullptr : &found->second;
}

std::string result_line(std::string_view event, const RunSummary& run) {
  nlohmann::ordered_json shape = nlohmann::ordered_json::array(), names = shape;
  for (const auto& [name, size] : run.mesh) {
    names.push_back(name);
    shape.push_back(size);
  }
  const auto rounded = [](double value) { return std::round(value * 1e6) / 1e6; };
  nlohmann::ordered_json out = {{"name", run.name},
                                {"run_dir", run.folder},
                                {"overrides", run.overrides},
                                {"mesh", {{"shape", shape}, {"axis_names", names}}},
                                {"epochs", run.epochs},
                                {"best_epoch", run.best_epoch},
                                {"train_seconds", rounded(run.train_seconds)},
                                {"ms_per_step", rounded(run.ms_per_step)},
                                {"bytes_per_device", run.bytes_per_device}};
  if (event.find("\"ms_per_step\"") != std::string_view::npos) {
    out.erase("ms_per_step");  // an epoch has its own
  }
  const std::string facts = json_text(out, -1, nlohmann::ordered_json::error_handler_t::replace);
  return fmt::format("{},{}", event.substr(0, event.size() - 1), facts.substr(1));
}

}  // namespace meshtrain
