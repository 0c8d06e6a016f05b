#include "train/callbacks/monitor.h"

#include <cmath>

#include "base/text.h"
#include "train/callbacks/saved_state.h"

namespace meshtrain {

std::optional<bool> larger_is_better(const StepGraphs& graphs, const std::string& log) {
  const std::string name = starts_with(log, "val_") ? log.substr(4) : log;
  if (name == "loss") {
    return false;
  }
  for (const TrackedMetric& tracked : graphs.metrics()) {
    if (tracked.metric.name == name && tracked.metric.has_direction) {
      return tracked.metric.larger_is_better;
    }
  }
  return std::nullopt;
}

Monitor::Monitor(const MonitorOptions& options, double min_delta, const CallbackContext& context,
                 std::optional<double> best)
    : context_(context), name_(options.monitor), best_(best), first_best_(best) {
  larger_ = options.mode == MonitorMode::kAuto ? context.larger_is_better(name_)
                                               : options.mode == MonitorMode::kMax;
  delta_ = larger_ ? std::abs(min_delta) : -std::abs(min_delta);
}

void Monitor::save(nlohmann::json& state) const {
  state["best"] = saved_number(best_);
  state["monitor"] = name_;
  state["larger"] = larger_;
}

bool Monitor::load(const nlohmann::json& state) {
  // States of before did not say what the value is of.
  if (state.value("monitor", name_) != name_ || state.value("larger", larger_) != larger_) {
    return false;
  }
  best_ = read_number(state.at("best"));
  return true;
}

bool Monitor::improves_on(double value, const std::optional<double>& reference) const {
  if (!reference) {
    return true;
  }
  const auto compare = [this](auto a, auto b) { return larger_ ? a > b : a < b; };
  if (context_.config.dtype_policy.value == "float64") {
    return compare(value - delta_, *reference);
  }
  return compare(static_cast<float>(value - delta_), static_cast<float>(*reference));
}

const double* Monitor::find(const Logs& logs, const std::string& missing) {
  const double* value = find_log(logs, name_);
  if (value == nullptr && !warned_) {
    context_.warn(missing);
    warned_ = true;
  }
  return value;
}

std::string log_names(const Logs& logs) {
  std::vector<std::string> names;
  for (const auto& [name, value] : logs) {
    names.push_back(name);
  }
  return join(names, ",");
}

}  // namespace meshtrain
