#include "train/expectations.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/median.h"
#include "base/suggest.h"
#include "base/text.h"
#include "record/progress.h"
#include "train/callbacks/make_callbacks.h"
#include "train/callbacks/saved_state.h"
#include "train/verify_meshes.h"

namespace meshtrain {
namespace {

using LogNames = std::vector<std::string>;

void check_names(const std::vector<LogBound>& bounds, const LogNames& logs, const char* key,
                 std::string_view help, Diagnostics& diagnostics) {
  for (const LogBound& bound : bounds) {
    if (std::find(logs.begin(), logs.end(), bound.log) != logs.end()) {
      continue;
    }
    Diagnostic& problem = diagnostics.error(
        "E113", bound.text.loc,
        fmt::format("`expect.{}` names `{}`, which is no log here", key, bound.log));
    suggest(problem, bound.log, logs);
    if (!logs.empty()) {
      problem.note("logs: " + join(logs, ", "));
    }
    if (!help.empty()) {
      problem.help(help);
    }
  }
}

void judge(const std::vector<LogBound>& bounds, const Logs& logs, Diagnostics& out) {
  for (const LogBound& bound : bounds) {
    const auto found = std::find_if(logs.begin(), logs.end(),
                                    [&](const auto& log) { return log.first == bound.log; });
    if (found == logs.end()) {
      out.error(
          "E520", bound.text.loc,
          fmt::format("`{}` was not logged at the end, expected {}", bound.log, bound.text.value));
    } else if (!bound.holds_for(found->second)) {
      out.error("E520", bound.text.loc,
                fmt::format("`{}` is {}, expected {}", bound.log, format_shortest(found->second),
                            bound.text.value));
    }
  }
}

}  // namespace

void check_expectations(const Setup& setup, bool validates, bool evaluates,
                        Diagnostics& diagnostics) {
  const ExpectConfig& expected = setup.config().expect;
  LogNames running;
  for (const TrackedMetric& tracked : setup.graphs().metrics()) {
    running.push_back(tracked.metric.name);
  }
  std::sort(running.begin(), running.end());
  LogNames logs = running;
  for (size_t i = 0; validates && i < running.size(); ++i) {
    logs.push_back("val_" + running[i]);
  }
  for (const ConfigObject& callback : setup.config().callbacks) {
    if (callback_type(callback.class_name).adds_learning_rate) {
      logs.emplace_back("learning_rate");
    }
  }
  check_names(expected.logs, logs, "logs", "", diagnostics);
  check_names(expected.evaluate, evaluates ? running : LogNames(), "evaluate",
              evaluates ? "" : "nothing is evaluated after fit: `evaluate.on` names the data",
              diagnostics);
  if (expected.equal_over_meshes.value > 0 && setup.mesh().num_devices() == 1) {
    diagnostics
        .error("E140", expected.equal_over_meshes.loc,
               "the mesh has one device: there is nothing to compare with")
        .help("--devices cpu:8 --mesh 4x2, or any other");
  }
}

bool Expectations::is_any() const {
  return !expected_.logs.empty() || !expected_.evaluate.empty() ||
         expected_.ms_per_step.value > 0 || expected_.equal_over_meshes.value > 0;
}

void Expectations::on_epoch_end(EpochReport& report) {
  epoch_ = report.logs;
  if (report.timed_steps > 0) {
    ms_per_step_.push_back(1000 * report.train_seconds / static_cast<double>(report.timed_steps));
  }
}

void Expectations::on_pass_end(const PassPosition& position, const EvaluateReport& report) {
  if (position.pass == Pass::kEvaluation) {
    evaluation_ = report.logs;
  }
}

Diagnostics Expectations::failures(const LoadOptions& load) const {
  Diagnostics out;
  judge(expected_.logs, epoch_, out);
  judge(expected_.evaluate, evaluation_, out);
  if (expected_.ms_per_step.value > 0 && !ms_per_step_.empty() &&
      median(ms_per_step_) > expected_.ms_per_step.value) {
    out.error("E520", expected_.ms_per_step.loc,
              fmt::format("a step takes {:.3g} ms, expected at most {:.3g}", median(ms_per_step_),
                          expected_.ms_per_step.value));
  }
  if (expected_.equal_over_meshes.value > 0) {
    std::string lines;
    MeshProofOptions proof;
    proof.load = load;
    proof.tolerance = expected_.equal_over_meshes.value;
    proof.show = [&](std::string_view text) { lines += text; };
    if (!verify_meshes(proof)) {
      Diagnostic& problem =
          out.error("E520", expected_.equal_over_meshes.loc, "meshes give different numbers");
      for (const std::string& line : split(trim(lines), '\n')) {
        problem.note(line);
      }
    }
  }
  return out;
}

std::string Expectations::save_state() const {
  nlohmann::json logs = nlohmann::json::array();
  for (const auto& [name, value] : epoch_) {
    logs.push_back({name, saved_number(value)});
  }
  return json_text(nlohmann::json{{"logs", logs}, {"ms_per_step", ms_per_step_}});
}

void Expectations::load_state(const std::string& json) {
  const nlohmann::json state = parse_json(json);
  epoch_.clear();
  for (const nlohmann::json& log : state.at("logs")) {
    const nlohmann::json& value = log.at(1);  // a number in states of older versions
    epoch_.emplace_back(log.at(0),
                        value.is_number() ? value.get<double>() : read_number(value).value());
  }
  ms_per_step_ = state.at("ms_per_step").get<std::vector<double>>();
}

}  // namespace meshtrain
