// The forms of a Comparison: a table on a terminal, CSV, JSON, Markdown, a page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "record/csv_field.h"
#include "record/progress.h"
#include "record/report/chart.h"
#include "record/report/html.h"
#include "record/report/run_report.h"
#include "record/report/sections.h"
#include "train/comparison.h"
#include "train/sweep_plan.h"

namespace meshtrain {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kMeshKey = "distribution.device_mesh.shape";

// All names of logs, in the order of the first run that has them.
std::vector<std::string> log_names(const Comparison& comparison, const Logs RunSummary::*logs) {
  std::vector<std::string> out;
  for (const ComparedRun& run : comparison.runs) {
    for (const auto& [name, value] : run.summary.*logs) {
      if (std::find(out.begin(), out.end(), name) == out.end()) {
        out.push_back(name);
      }
    }
  }
  return out;
}

bool has_tags(const Comparison& comparison) {
  return std::any_of(comparison.runs.begin(), comparison.runs.end(),
                     [](const ComparedRun& run) { return !run.tags.empty(); });
}

// A cell as people read it, and as programs do.
struct Cell {
  std::string text, exact;
};

Cell number_cell(const double* value) {
  return value == nullptr ? Cell{"", ""}
                          : Cell{progress_number(*value, true),
                                 std::isfinite(*value) ? format_shortest(*value) : "nan"};
}

struct Table {
  std::vector<std::string> heads;   // short names
  std::vector<std::string> fields;  // whole ones, for programs
  std::vector<std::vector<Cell>> rows;
  size_t first_number = 0;

  void head(const std::string& text, const std::string& field) {
    heads.push_back(text);
    fields.push_back(field);
  }
};

Table table_of(const Comparison& comparison) {
  Table out;
  out.head("run", "run");
  const std::vector<std::string> names = short_keys(comparison.keys);
  for (size_t k = 0; k < names.size(); ++k) {
    if (comparison.keys[k] != kMeshKey) {  // the column `mesh` names its axes
      out.head(names[k], comparison.keys[k]);
    }
  }
  out.head("mesh", "mesh");
  out.head("state", "state");
  if (has_tags(comparison)) {
    out.head("tags", "tags");
  }
  out.first_number = out.heads.size();
  out.head("epochs", "epochs");
  const auto last = log_names(comparison, &RunSummary::logs);
  const auto evaluated = log_names(comparison, &RunSummary::evaluation);
  for (const std::string& name : last) {
    out.head(name, name);
  }
  for (const std::string& name : evaluated) {
    out.head("evaluated " + name, "evaluate." + name);
  }
  out.head("best", "best");
  out.head("at", "best_epoch");
  out.head("ms/step", "ms_per_step");
  out.head("memory", "memory_per_device");
  for (const ComparedRun& run : comparison.runs) {
    const RunSummary& summary = run.summary;
    std::vector<Cell>& row = out.rows.emplace_back();
    row.push_back({run.label, summary.folder});
    for (const auto& [key, value] : run.values) {
      if (key != kMeshKey) {
        row.push_back({value, value});
      }
    }
    const std::string* shape = nullptr;
    for (const auto& [key, value] : run.values) {
      shape = key == kMeshKey ? &value : shape;
    }
    const bool has_run = summary.bytes_per_device > 0 || !summary.mesh.empty();
    const std::string mesh = has_run ? mesh_text(summary.mesh) : shape == nullptr ? "" : *shape;
    row.push_back({mesh, mesh});
    row.push_back({run.state, run.state});
    if (has_tags(comparison)) {
      row.push_back({join(run.tags, " "), join(run.tags, " ")});
    }
    row.push_back({std::to_string(summary.epochs), std::to_string(summary.epochs)});
    for (const std::string& name : last) {
      row.push_back(number_cell(find_log(summary.logs, name)));
    }
    for (const std::string& name : evaluated) {
      row.push_back(number_cell(find_log(summary.evaluation, name)));
    }
    row.push_back(number_cell(find_log(summary.best_logs, summary.monitor)));
    const std::string at = summary.best_epoch > 0 ? std::to_string(summary.best_epoch) : "";
    row.push_back({at, at});
    const bool has_time = summary.ms_per_step > 0;
    row.push_back({has_time ? fmt::format("{:.3g}", summary.ms_per_step) : "",
                   has_time ? fmt::format("{:.6f}", summary.ms_per_step) : ""});
    const int64_t memory = summary.memory_per_device;
    row.push_back(
        {memory > 0 ? format_bytes(memory) : "", memory > 0 ? std::to_string(memory) : ""});
  }
  return out;
}

std::string plain_text(const Table& table) {
  std::vector<std::vector<std::string>> rows = {table.heads};
  for (const std::vector<Cell>& row : table.rows) {
    std::vector<std::string>& texts = rows.emplace_back();
    for (const Cell& cell : row) {
      texts.push_back(cell.text.empty() ? "-" : cell.text);
    }
  }
  std::vector<size_t> right;
  for (size_t i = table.first_number; i < table.heads.size(); ++i) {
    right.push_back(i);
  }
  return aligned_columns(rows, right);
}

std::string csv_text(const Table& table) {
  std::vector<std::string> line;
  for (const std::string& field : table.fields) {
    line.push_back(csv_field(field));
  }
  std::string out = join(line, ",") + "\n";
  for (const std::vector<Cell>& row : table.rows) {
    line.clear();
    for (const Cell& cell : row) {
      line.push_back(csv_field(cell.exact));
    }
    out += join(line, ",") + "\n";
  }
  return out;
}

std::string markdown_text(const Table& table) {
  const auto cell_text = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      out += c == '|' ? "\\|" : std::string(1, c);
    }
    return out;
  };
  std::string out = "|", rule = "|";
  for (size_t i = 0; i < table.heads.size(); ++i) {
    out += " " + cell_text(table.heads[i]) + " |";
    rule += i >= table.first_number ? "---:|" : "---|";
  }
  out += "\n" + rule + "\n";
  for (const std::vector<Cell>& row : table.rows) {
    out += "|";
    for (const Cell& cell : row) {
      out += " " + cell_text(cell.text) + " |";
    }
    out += "\n";
  }
  return out;
}

OrderedJson logs_json(const Logs& logs) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [name, value] : logs) {
    out[name] = std::isfinite(value) ? OrderedJson(value) : OrderedJson();
  }
  return out;
}

// 0 stands for what was never known.
template <class Number>
OrderedJson or_null(Number number) {
  return number == 0 ? OrderedJson() : OrderedJson(number);
}

std::string json_rows(const Comparison& comparison) {
  OrderedJson out = OrderedJson::array();
  for (const ComparedRun& run : comparison.runs) {
    const RunSummary& summary = run.summary;
    OrderedJson values = OrderedJson::object(), shape = OrderedJson::array(),
                names = OrderedJson::array();
    for (const auto& [key, value] : run.values) {
      values[key] = value;
    }
    for (const auto& [name, size] : summary.mesh) {
      names.push_back(name);
      shape.push_back(size);
    }
    out.push_back(
        {{"run", run.label},
         {"folder", summary.folder},
         {"name", summary.name},
         {"state", run.state},
         {"exit_code", summary.exit_code ? OrderedJson(*summary.exit_code) : OrderedJson()},
         {"message", summary.message},
         {"tags", run.tags},
         {"values", values},
         {"mesh", {{"shape", shape}, {"axis_names", names}}},
         {"epochs", summary.epochs},
         {"logs", logs_json(summary.logs)},
         {"evaluate", logs_json(summary.evaluation)},
         {"monitor", summary.monitor},
         {"best_epoch", or_null(summary.best_epoch)},
         {"best", logs_json(summary.best_logs)},
         {"ms_per_step", or_null(summary.ms_per_step)},
         {"train_seconds", or_null(summary.train_seconds)},
         {"bytes_per_device", summary.bytes_per_device},
         {"memory_per_device", summary.memory_per_device}});
  }
  return json_text(out, 1, OrderedJson::error_handler_t::replace) + "\n";
}

// The run with what sets it apart, where that is short: "005 1e-2 4x2".
std::string curve_label(const ComparedRun& run) {
  constexpr size_t kLongest = 32;
  std::string out = run.label;
  for (const auto& [key, value] : run.values) {
    out += " " + value;
  }
  return out.size() <= kLongest ? out : run.label;
}

// Of a log, the curves of all runs over each other.
std::string log_chart(const Comparison& comparison, const std::string& log) {
  Chart chart{.title = log, .x_label = "epochs"};
  for (const ComparedRun& run : comparison.runs) {
    ChartSeries series{.label = curve_label(run)};
    for (const RunEpoch& epoch : run.record.epochs) {
      if (const double* value = find_log(epoch.logs, log)) {
        series.points.emplace_back(epoch.epoch, *value);
      }
    }
    if (!series.points.empty()) {
      chart.series.push_back(std::move(series));
    }
  }
  return chart.series.empty() ? "" : chart_html(chart);
}

std::string page(const Comparison& comparison) {
  const Table table = table_of(comparison);
  std::vector<std::vector<std::string>> rows = {{}};
  for (const std::string& head : table.heads) {
    rows[0].push_back(html_text(head));
  }
  for (const std::vector<Cell>& row : table.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    for (const Cell& cell : row) {
      cells.push_back(cell.text == cell.exact
                          ? html_text(cell.text)
                          : fmt::format(R"(<data value="{}">{}</data>)", html_text(cell.exact),
                                        html_text(cell.text)));
    }
  }
  std::string charts;
  for (const std::string& log : log_names(comparison, &RunSummary::logs)) {
    charts += log_chart(comparison, log);
  }
  return page_html(
      fmt::format("{} runs", comparison.runs.size()),
      fmt::format("<header><div class=\"top\"><h1>{} runs</h1></div></header>\n",
                  comparison.runs.size()) +
          section("Runs", html_table(rows, table.first_number)) +
          (charts.empty() ? "" : section("Curves", "<div class=\"charts\">" + charts + "</div>")));
}

}  // namespace

std::string comparison_text(const Comparison& comparison, TableFormat format) {
  switch (format) {
    case TableFormat::kCsv:
      return csv_text(table_of(comparison));
    case TableFormat::kJson:
      return json_rows(comparison);
    case TableFormat::kMarkdown:
      return markdown_text(table_of(comparison));
    case TableFormat::kHtml:
      return page(comparison);
    default:
      return plain_text(table_of(comparison));
  }
}

}  // namespace meshtrain
