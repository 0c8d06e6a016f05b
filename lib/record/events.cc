#include "record/events.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// Metrics of several values have a list.
std::string logs_json(const Logs& logs, const LogLists& lists) {
  std::string out = "{";
  for (const auto& [name, value] : logs) {
    std::string text = json_number(value);
    if (const auto list = lists.find(name); list != lists.end()) {
      std::vector<std::string> values;
      std::transform(list->second.begin(), list->second.end(), std::back_inserter(values),
                     json_number);
      text = fmt::format("[{}]", join(values, ","));
    }
    out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", json_string(name), text);
  }
  return out + "}";
}

std::string digits_of(double value, bool is_float64) {
  return !std::isfinite(value) ? "null"
         : is_float64          ? format_shortest(value)
                               : format_shortest(static_cast<float>(value));
}

std::string rates_json(const BatchWork& work, double seconds) {
  std::string out;
  if (const double tokens = work.tokens_per_second(seconds); tokens > 0)
    out += fmt::format(R"(,"tokens_per_second":{:.1f})", tokens);
  if (const double mfu = work.mfu(seconds); mfu > 0)
    out += fmt::format(R"(,"mfu":{:.6f})", mfu);
  return out;
}

}  // namespace

std::string json_string(std::string_view text) {
  return json_text(nlohmann::json(text), -1, nlohmann::json::error_handler_t::replace);
}

std::string json_number(double value) {
  return std::isfinite(value) ? format_shortest(value) : "null";
}

void EventLog::start(const RunInfo& info) {
  work_ = info.work;
  nlohmann::ordered_json event = {
      {"event", "start"},
      {"version", info.version},
      {"config", info.config},
      {"name", info.name},
      {"run_dir", info.run_dir},
      {"seed", info.seed},
      {"dtype_policy", info.dtype_policy},
      {"mesh", {{"shape", info.mesh_shape}, {"axis_names", info.axis_names}}},
      {"devices", info.devices},
      {"batch_size", info.batch_size},
      {"steps_per_epoch", info.steps_per_epoch},
      {"initial_epoch", info.initial_epoch},
      {"epochs", info.epochs},
      {"samples", info.samples},
      {"validation_samples", info.validation_samples},
      {"parameters", info.parameters},
      {"parameter_bytes", info.parameter_bytes},
      {"bytes_per_device", info.bytes_per_device}};
  event["overrides"] = info.overrides;
  event["monitor"] = {{"log", info.monitor}, {"mode", info.larger_is_better ? "max" : "min"}};
  if (!info.resumed_from.empty()) {
    event["resumed_from"] = info.resumed_from;
    event["changes"] = nlohmann::ordered_json::object();
    for (const auto& [key, before, after] : info.changes) {
      event["changes"][key] = {before, after};
    }
  }
  emit(json_text(event, -1, nlohmann::json::error_handler_t::replace));
}

void EventLog::end(int exit_code, std::string_view message) {
  emit(message.empty() ? fmt::format(R"({{"event":"end","exit_code":{}}})", exit_code)
                       : fmt::format(R"({{"event":"end","exit_code":{},"message":{}}})", exit_code,
                                     json_string(message)));
}

void EventLog::on_train_step(const TrainPosition& position, const StepRunner& runner) {
  epoch_ = position.epoch + 1;
  step_ = position.batch;
  if (!log_steps_) {
    return;
  }
  emit(fmt::format(R"({{"event":"step","epoch":{},"step":{},"loss":{}}})", position.epoch + 1,
                   position.batch, digits_of(runner.last_loss(), float64_)));
}

void EventLog::on_epoch_end(EpochReport& report) {
  epoch_ = report.epoch;
  step_ = 0;
  const double seconds = report.seconds_per_step();
  const std::string rate =
      report.scheduled_rate
          ? fmt::format(R"(,"learning_rate":{})", digits_of(*report.scheduled_rate, float64_))
          : "";
  emit(fmt::format(
      R"({{"event":"epoch","epoch":{},"steps":{},"seconds":{:.6f},"ms_per_step":{:.6f}{}{},"logs":{}}})",
      report.epoch, report.steps, report.seconds, seconds * 1e3, rates_json(work_, seconds), rate,
      logs_json(report.logs, report.lists)));
}

void EventLog::on_pass_begin(const PassPosition& position) {
  if (position.pass == Pass::kValidation && position.at.epoch_trained) {
    epoch_ = position.at.epoch + 1;
    step_ = 0;
  }
}

void EventLog::on_pass_end(const PassPosition& position, const EvaluateReport& report) {
  if (position.is_within_epoch()) {
    emit(fmt::format(R"({{"event":"validation","epoch":{},"step":{},"seconds":{:.6f},"logs":{}}})",
                     position.at.epoch + 1, position.at.batch, report.seconds,
                     logs_json(validation_logs(report.logs), {})));
  }
  if (position.pass != Pass::kEvaluation) {
    return;
  }
  emit(fmt::format(R"({{"event":"evaluate","steps":{},"seconds":{:.6f},"logs":{}}})", report.steps,
                   report.seconds, logs_json(report.logs, report.lists)));
}

// best_epoch is null where it is not known.
void EventLog::on_stop(const StopReport& report) {
  emit(fmt::format(R"({{"event":"stop","by":{},"epoch":{},"epochs":{},"best_epoch":{},"text":{}}})",
                   json_string(report.by), report.epoch, report.epochs,
                   report.best_epoch > 0 ? fmt::format("{}", report.best_epoch) : "null",
                   json_string(stop_text(report))));
}

void EventLog::on_warning(const std::string& text) {
  emit(fmt::format(R"({{"event":"warning",{}{}"text":{}}})",
                   epoch_ > 0 ? fmt::format(R"("epoch":{},)", epoch_) : "",
                   step_ > 0 ? fmt::format(R"("step":{},)", step_) : "", json_string(text)));
}

void EventLog::emit(std::string_view line) const {
  for (const LineSink& sink : sinks_) {
    sink(line);
  }
}

}  // namespace meshtrain
