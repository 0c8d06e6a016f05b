// What `watch` draws: the curves of runs in the columns of a terminal.
#pragma once

#include <string>
#include <vector>

#include "record/report/record.h"

namespace meshtrain {

struct WatchOptions {
  int columns = 80;               // of the terminal; no row is longer than columns - 1
  int rows = 24;                  // of the terminal; charts shrink to fit, down to 4 rows each
  bool color = false;             // else each curve has a mark of its own
  bool is_alive = true;           // someone writes the runs
  std::vector<std::string> logs;  // to draw; empty: the loss and the first other log
};

// A curve: values by epoch, or between epochs where steps are logged.
struct WatchSeries {
  std::string label;
  std::vector<std::pair<double, double>> points;
};

// The curve of a log in each run, validation's behind training's.
std::vector<WatchSeries> watch_series(const std::vector<RunRecord>& runs, const std::string& log);

// Rows with line ends: a head for each run, and a chart for each log.
std::string watch_text(const std::vector<RunRecord>& runs, const WatchOptions& options);

// One row about an epoch, for a file or a pipe: "epoch 3/10 - 1.2 s - loss: 0.1234".
std::string epoch_row(const RunRecord& run, size_t epoch);

}  // namespace meshtrain
