#include "record/report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "record/report/chart.h"
#include "record/report/html.h"
#include "record/run_summary.h"

namespace meshtrain {
namespace {

std::string tile(const std::string& label, const std::string& value) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", value, label);
}

// How the run ended, or that it has not.
std::pair<std::string, std::string> state_of(const RunSession& last) {
  if (!last.exit_code) {
    return {"wait", "no end recorded: running, or killed"};
  }
  switch (*last.exit_code) {
    case 0:
      return {"good", "finished"};
    case 75:
      return {"wait", "stopped, can be resumed"};
    case 5:
      return {"bad", "diverged"};
    default:
      return {"bad", fmt::format("failed with exit code {}", *last.exit_code)};
  }
}

// Where resumed sessions begin, between the epochs before and after.
std::vector<ChartJoint> epoch_joints(const RunRecord& record) {
  std::vector<ChartJoint> joints;
  for (size_t i = 1; i < record.epochs.size(); ++i) {
    const RunEpoch &before = record.epochs[i - 1], &after = record.epochs[i];
    if (before.session != after.session) {
      joints.push_back({static_cast<double>(before.epoch + after.epoch) / 2,
                        "resumed from " + record.sessions[after.session].resumed_from});
    }
  }
  return joints;
}

// Validations between the steps of an epoch, at their part of it.
void add_within_epochs(const RunRecord& record, const std::string& log, ChartSeries& series) {
  int64_t steps = 0;
  for (const RunEpoch& epoch : record.epochs)
    steps = std::max(steps, epoch.steps);
  for (const RunValidation& validation : record.validations)
    steps = std::max(steps, validation.step);
  for (const RunValidation& validation : record.validations) {
    if (const double* value = find_log(validation.logs, log)) {
      const double part = static_cast<double>(validation.step) / static_cast<double>(steps);
      series.points.emplace_back(static_cast<double>(validation.epoch - 1) + part, *value);
    }
  }
  std::stable_sort(series.points.begin(), series.points.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
}

ChartSeries epoch_series(const RunRecord& record, const std::string& log,
                         const std::string& label) {
  ChartSeries series{.label = label};
  for (const RunEpoch& epoch : record.epochs) {
    if (const double* value = find_log(epoch.logs, log)) {
      series.points.emplace_back(epoch.epoch, *value);
    }
  }
  add_within_epochs(record, log, series);
  return series;
}

std::string step_chart(const RunRecord& record) {
  Chart chart{.title = "loss of each batch", .x_label = "steps"};
  ChartSeries& series = chart.series.emplace_back(ChartSeries{.label = "loss"});
  for (size_t i = 0; i < record.steps.size(); ++i) {
    series.points.emplace_back(i + 1, record.steps[i].loss);
  }
  return series.points.empty() ? "" : chart_html(chart);
}

}  // namespace

std::string section(const std::string& title, const std::string& content) {
  return fmt::format("<section><h2>{}</h2>{}</section>\n", title, content);
}

std::string html_table(const std::vector<std::vector<std::string>>& rows, size_t first_number) {
  std::string out = "<div class=\"wide\"><table>";
  for (size_t r = 0; r < rows.size(); ++r) {
    out += r == 0 ? "<thead><tr>" : "<tr>";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      out += fmt::format("<{0}{1}>{2}</{0}>", r == 0 ? "th" : "td",
                         c >= first_number ? " class=\"n\"" : "", rows[r][c]);
    }
    out += r == 0 ? "</tr></thead><tbody>" : "</tr>\n";
  }
  return out + "</tbody></table></div>";
}

std::string header_section(const RunRecord& record) {
  const RunSession& last = record.sessions.back();
  const auto [kind, state] = state_of(last);
  std::string out =
      fmt::format("<header><div class=\"top\"><h1>{}</h1><span class=\"badge {}\">{}</span></div>",
                  html_text(record.name.empty() ? "run" : record.name), kind, state);
  out += fmt::format("<p class=\"under\">{} \xc2\xb7 {} \xc2\xb7 {} \xc2\xb7 meshtrain {}</p>",
                     html_text(last.config), html_text(mesh_text(last.mesh)),
                     html_text(last.devices), html_text(last.version));
  if (!last.message.empty()) {
    out += fmt::format("<p class=\"under {}\">{}</p>", kind, html_text(last.message));
  }
  if (!last.stopped.empty()) {
    out += fmt::format("<p class=\"under\">{}</p>", html_text(last.stopped));
  }
  out += "<div class=\"tiles\">";
  double seconds = 0;
  int64_t steps = 0;
  for (const RunEpoch& epoch : record.epochs) {
    seconds += epoch.seconds;
    steps += epoch.steps;
  }
  if (!record.epochs.empty()) {
    Logs logs = record.epochs.back().logs;
    std::stable_partition(logs.begin(), logs.end(), [](const auto& log) {
      return log.first == "loss" || log.first == "val_loss";
    });
    std::stable_partition(logs.begin(), logs.end(),
                          [](const auto& log) { return log.first != "learning_rate"; });
    for (const auto& [name, value] : logs) {
      out += tile(html_text(name), html_number(value));
    }
    if (const RunSummary run = summarize_run(record); run.best_epoch > 0) {
      out += tile("best epoch, by " + html_text(run.monitor), std::to_string(run.best_epoch));
    }
    out += tile("epochs of " + std::to_string(last.epochs),
                std::to_string(record.epochs.back().epoch));
    out += tile("steps in " + duration_text(seconds), format_thousands(steps));
    const RunEpoch& epoch = record.epochs.back();
    out += tile("ms a step, last epoch", html_number(epoch.ms_per_step));
    if (epoch.tokens_per_second > 0) {
      out += tile("tokens a second, last epoch",
                  format_thousands(std::llround(epoch.tokens_per_second)));
    }
    if (epoch.mfu > 0) {
      out += tile("MFU, last epoch", fmt::format("{:.1f}%", epoch.mfu * 100));
    }
  }
  if (!record.evaluations.empty()) {
    for (const auto& [name, value] : record.evaluations.back()) {
      out += tile("evaluated " + html_text(name), html_number(value));
    }
  }
  out += tile("parameters", format_thousands(last.parameters));
  out += tile("batch size", format_thousands(last.batch_size));
  out += tile("seed", std::to_string(last.seed));
  return out + "</div></header>\n";
}

std::string curves_section(const RunRecord& record) {
  std::string out;
  for (const std::string& name : record.log_names()) {
    Chart chart{.title = name, .x_label = "epochs", .joints = epoch_joints(record)};
    for (const auto& [log, label] : {std::pair(name, "training"), {"val_" + name, "validation"}}) {
      ChartSeries series = epoch_series(record, log, label);
      if (!series.points.empty()) {
        chart.series.push_back(std::move(series));
      }
    }
    out += chart_html(chart);
  }
  if (!record.epochs.empty()) {
    Chart chart{.title = "time of a step", .x_label = "epochs", .joints = epoch_joints(record)};
    ChartSeries& series = chart.series.emplace_back(ChartSeries{.label = "ms"});
    for (const RunEpoch& epoch : record.epochs) {
      series.points.emplace_back(epoch.epoch, epoch.ms_per_step);
    }
    out += chart_html(chart);
  }
  out += step_chart(record);
  return out.empty() ? "" : section("Curves", "<div class=\"charts\">" + out + "</div>");
}

std::string epochs_section(const RunRecord& record) {
  if (record.epochs.empty()) {
    return "";
  }
  std::vector<std::string> names;
  for (const RunEpoch& epoch : record.epochs) {
    for (const auto& [name, value] : epoch.logs) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  std::vector<std::vector<std::string>> rows = {{"epoch", "steps", "seconds", "ms a step"}};
  for (const std::string& name : names) {
    rows[0].push_back(html_text(name));
  }
  const int64_t best = summarize_run(record).best_epoch;
  for (const RunEpoch& epoch : record.epochs) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {std::to_string(epoch.epoch) + (epoch.epoch == best ? " (best)" : ""),
           format_thousands(epoch.steps), html_number(epoch.seconds),
           html_number(epoch.ms_per_step)};
    for (const std::string& name : names) {
      const double* value = find_log(epoch.logs, name);
      row.push_back(value == nullptr ? "\xe2\x80\x93" : html_number(*value));
    }
  }
  return section("Epochs", html_table(rows, 0));
}

std::string changes_section(const RunRecord& record) {
  std::vector<std::vector<std::string>> rows = {{"start", "key", "before", "after"}};
  for (size_t s = 0; s < record.sessions.size(); ++s) {
    for (const std::vector<std::string>& change : record.sessions[s].changes) {
      rows.push_back({std::to_string(s + 1), "<code>" + html_text(change[0]) + "</code>",
                      html_text(change[1]), html_text(change[2])});
    }
  }
  return rows.size() == 1 ? "" : section("Changed when resumed", html_table(rows, 9));
}

std::string warnings_section(const RunRecord& record) {
  std::string out;
  for (const std::string& warning : record.warnings) {
    out += fmt::format("<li>{}</li>", html_text(warning));
  }
  return out.empty() ? "" : section("Warnings", "<ul>" + out + "</ul>");
}

std::string config_section(const RunRecord& record) {
  std::string out;
  if (!record.config.empty()) {
    out += fmt::format(
        "<details open=\"open\"><summary>config.yaml, as written</summary><pre>{}</pre></details>",
        html_text(record.config));
  }
  if (!record.resolved_config.empty()) {
    out += fmt::format(
        "<details><summary>config.resolved.yaml, every value and where it is from</summary>"
        "<pre>{}</pre></details>",
        html_text(record.resolved_config));
  }
  const nlohmann::ordered_json meta = parse_json<nlohmann::ordered_json>(record.meta);
  if (meta.is_object()) {
    out += fmt::format("<details><summary>meta.json</summary><pre>{}</pre></details>",
                       html_text(json_text(meta, 1)));
  }
  return out.empty() ? "" : section("Config", out);
}

}  // namespace meshtrain
