#include "record/watch_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/columns.h"
#include "base/utf8.h"
#include "record/progress.h"
#include "record/report/html.h"
#include "record/run_summary.h"

namespace meshtrain {
namespace {

constexpr int kLabelWidth = 9;     // of the numbers beside a chart
constexpr int kLeastColumns = 30;  // of a chart; below there are only heads
constexpr std::array<const char*, 6> kColors = {"34", "33", "32", "35", "31", "36"};
constexpr std::array<char, 6> kMarks = {'o', 'x', '+', '*', '#', '@'};

std::string painted(const std::string& text, size_t series, bool color) {
  return color ? fmt::format("\x1b[{}m{}\x1b[0m", kColors[series % kColors.size()], text) : text;
}

// The first `columns` characters of a text without escapes.
std::string cut_to(const std::string& text, int columns) {
  size_t at = 0;
  for (int used = 0; at < text.size() && used < columns; ++used)
    at += std::max<size_t>(utf8_length(text, at), 1);
  return text.substr(0, at);
}

struct Bounds {
  double least = HUGE_VAL, most = -HUGE_VAL;
  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  // 0 to 1.
  double place(double value) const { return most > least ? (value - least) / (most - least) : 0.5; }
};

// A grid of dots: 2 x 4 of Braille in each character, or one mark.
class Canvas {
 public:
  Canvas(int columns, int rows, bool color)
      : columns_(columns),
        rows_(rows),
        color_(color),
        cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  // Straight from each point to the next; places are 0 to 1, y upwards.
  void draw(const std::vector<std::pair<double, double>>& places, size_t series) {
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [x, y] = places[i];
      const auto [next_x, next_y] = places[std::min(i + 1, places.size() - 1)];
      const int count = 2 * (columns_ + rows_) * 4;
      const int steps = std::max(
          1, static_cast<int>(std::ceil((std::abs(next_x - x) + std::abs(next_y - y)) * count)));
      for (int step = 0; step <= steps; ++step) {
        const double part = static_cast<double>(step) / steps;
        dot(x + (next_x - x) * part, y + (next_y - y) * part, series);
      }
    }
  }

  std::string row(int row) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[static_cast<size_t>(row * columns_ + column)];
      if (cell.dots == 0) {
        out += ' ';
      } else if (color_) {
        std::string braille;
        append_utf8(static_cast<char32_t>(0x2800 + cell.dots), braille);
        out += painted(braille, cell.series, true);
      } else {
        out += kMarks[cell.series % kMarks.size()];
      }
    }
    return out;
  }

 private:
  struct Cell {
    unsigned dots = 0;
    size_t series = 0;
  };

  void dot(double x, double y, size_t series) {
    constexpr unsigned kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int column =
        std::clamp(static_cast<int>(x * (2 * columns_ - 1) + 0.5), 0, 2 * columns_ - 1);
    const int row = std::clamp(static_cast<int>((1 - y) * (4 * rows_ - 1) + 0.5), 0, 4 * rows_ - 1);
    Cell& cell = cells_[static_cast<size_t>(row / 4 * columns_ + column / 2)];
    cell.dots |= kBits[row % 4][column % 2];
    cell.series = series;
  }

  int columns_, rows_;
  bool color_;
  std::vector<Cell> cells_;
};

std::string legend(const std::string& log, const std::vector<WatchSeries>& series,
                   const WatchOptions& options) {
  std::string out = cut_to(log, options.columns - 1);
  int used = static_cast<int>(visible_width(out));
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string label = fmt::format(
        "{} {} {}",
        options.color ? std::string("\xe2\x97\x8f") : std::string(1, kMarks[i % kMarks.size()]),
        series[i].label,
        series[i].points.empty() ? "-" : short_number(series[i].points.back().second));
    const int width = static_cast<int>(visible_width(label)) + 3;
    if (used + width >= options.columns)
      break;
    out += "   " + painted(label, i, options.color);
    used += width;
  }
  return out + "\n";
}

std::string chart_text(const std::string& log, const std::vector<WatchSeries>& series, int rows,
                       const WatchOptions& options) {
  Bounds x, y;
  for (const WatchSeries& one : series) {
    for (const auto& [epoch, value] : one.points) {
      x.add(epoch);
      y.add(value);
    }
  }
  std::string out = legend(log, series, options);
  if (y.most < y.least)
    return out;
  const int columns = std::min(options.columns - 1, 140) - kLabelWidth - 1;
  Canvas canvas(columns, rows, options.color);
  for (size_t i = 0; i < series.size(); ++i) {
    std::vector<std::pair<double, double>> places;
    for (const auto& [epoch, value] : series[i].points)
      places.emplace_back(x.place(epoch), y.place(value));
    canvas.draw(places, i);
  }
  for (int row = 0; row < rows; ++row) {
    const std::string label = row == 0          ? short_number(y.most)
                              : row == rows - 1 ? short_number(y.least)
                                                : "";
    std::string line = fmt::format("{:>{}} {}", label, kLabelWidth, canvas.row(row));
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  const std::string first = fmt::format("epoch {}", short_number(x.least)),
                    last = short_number(x.most);
  const int gap = columns - static_cast<int>(first.size() + last.size());
  return out + fmt::format("{:>{}} {}{}{}\n", "", kLabelWidth, first,
                           std::string(static_cast<size_t>(std::max(gap, 1)), ' '), last);
}

std::string name_of(const RunRecord& run) {
  const std::string folder = run.folder.substr(run.folder.rfind('/') + 1);
  return run.name.empty() || run.name == folder ? folder : run.name + " " + folder;
}

std::string head_row(const RunRecord& run, const WatchOptions& options) {
  const RunSession& last = run.sessions.back();
  const RunSummary summary = summarize_run(run);
  const std::string state = summary.exit_code  ? run_state(summary)
                            : options.is_alive ? "running"
                                               : "no end recorded";
  std::string text = fmt::format("epoch {}/{}  {}  {}", summary.epochs,
                                 std::max(last.epochs, summary.epochs), state, name_of(run));
  if (summary.ms_per_step > 0)
    text += fmt::format("  {} ms/step", short_number(summary.ms_per_step));
  if (summary.best_epoch > 0 && !summary.monitor.empty()) {
    if (const double* best = find_log(summary.best_logs, summary.monitor))
      text += fmt::format("  best {} {} in epoch {}", summary.monitor, short_number(*best),
                          summary.best_epoch);
  }
  return cut_to(text, options.columns - 1) + "\n";
}

std::vector<std::string> drawn_logs(const std::vector<RunRecord>& runs,
                                    const WatchOptions& options) {
  if (!options.logs.empty())
    return options.logs;
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    for (const std::string& name : run.log_names()) {
      if (std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    }
  }
  names.resize(std::min<size_t>(names.size(), 2));
  return names;
}

}  // namespace

std::vector<WatchSeries> watch_series(const std::vector<RunRecord>& runs, const std::string& log) {
  std::vector<WatchSeries> all;
  for (const RunRecord& run : runs) {
    for (const bool is_validation : {false, true}) {
      const std::string name = is_validation ? "val_" + log : log;
      WatchSeries series;
      series.label = runs.size() == 1 ? name : (is_validation ? "val " : "") + name_of(run);
      if (!is_validation && log == "loss" && !run.steps.empty()) {
        const int64_t steps = run.epochs.empty() ? 0 : run.epochs.back().steps;
        int64_t most = steps;
        for (const RunStep& step : run.steps)
          most = std::max(most, step.step);
        for (const RunStep& step : run.steps) {
          if (std::isfinite(step.loss))
            series.points.emplace_back(
                static_cast<double>(step.epoch - 1) +
                    static_cast<double>(step.step) / static_cast<double>(most),
                step.loss);
        }
      } else {
        for (const RunEpoch& epoch : run.epochs) {
          const double* value = find_log(epoch.logs, name);
          if (value != nullptr && std::isfinite(*value))
            series.points.emplace_back(static_cast<double>(epoch.epoch), *value);
        }
      }
      if (!series.points.empty())
        all.push_back(std::move(series));
    }
  }
  return all;
}

std::string watch_text(const std::vector<RunRecord>& runs, const WatchOptions& options) {
  std::string out;
  for (const RunRecord& run : runs)
    out += head_row(run, options);
  if (options.columns < kLeastColumns)
    return out;
  const std::vector<std::string> logs = drawn_logs(runs, options);
  const int left = options.rows - static_cast<int>(runs.size()) - 1;
  const int each = logs.empty() ? 0 : left / static_cast<int>(logs.size()) - 2;
  for (const std::string& log : logs)
    out += chart_text(log, watch_series(runs, log), std::clamp(each, 4, 12), options);
  return out;
}

std::string epoch_row(const RunRecord& run, size_t epoch) {
  const RunEpoch& one = run.epochs[epoch];
  return fmt::format("epoch {}/{} - {}{}", one.epoch,
                     std::max(run.sessions[one.session].epochs, one.epoch),
                     duration_text(one.seconds), metrics_text(one.logs, true));
}

}  // namespace meshtrain
