// Progbar: Keras' progress output, byte for byte (keras/src/utils/progbar.py and
// callbacks/progbar_logger.py of Keras 3.16).
//
//   verbose 0   nothing
//   verbose 1   a line redrawn with backspaces: bold count, green bar, time, metrics
//   verbose 2   one line when the last step is done
//
// The clock and the stream are parameters, so that tests control both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/logs.h"

namespace meshtrain {

using TextSink = std::function<void(std::string_view)>;  // gets whole drawings

class Progbar {
 public:
  // `target`: number of steps, 0 when unknown. The time starts now, when `done` of them are done.
  Progbar(int64_t target, int verbose, Clock now, TextSink write, int64_t done = 0);

  // `current` steps are done. Draws unless less than 0.05 s passed since the last drawing; `logs`
  // is called only for a drawing and returns the running values.
  void update(int64_t current, const std::function<Logs()>& logs);
  // The same without a drawing: for a bar that only its end shows.
  void skip(int64_t current) { seconds_per_step(current, now_()); }
  // The end of the epoch, evaluation or prediction: always drawn, with the elapsed time and a line
  // feed. An unknown target becomes `current`; a known one is shown as reached even when the data
  // ran out before.
  // `rates` follow the time of a step.
  void finish(int64_t current, const Logs& logs, const std::string& rates = "");
  // Removes the drawing from the screen (verbose 1), and leaves the cursor at the start of an empty
  // line.
  void erase();

  double elapsed() const { return now_() - start_; }

 private:
  void draw(int64_t current, double now, bool final);
  double seconds_per_step(int64_t current, double now);
  void take(const Logs& logs);

  int64_t target_, done_;
  int verbose_;
  Clock now_;
  TextSink write_;
  Logs values_;        // in the order first seen
  std::string rates_;  // of the finished line
  double start_;
  std::optional<double> last_drawn_;
  std::optional<double> first_step_end_;
  int64_t width_ = 0;  // visible columns of the drawing on the screen
};

// "  1/100": `current` right-aligned to the digits of `target`; "      1/Unknown" for 0.
std::string progress_count(int64_t current, int64_t target);
// The count, bold, and a green bar of so many columns; 0: the count alone.
std::string progress_bar(int64_t current, int64_t target, int width, bool color = true);
// "5s", "2:10", "1:02:10"
std::string progress_time(double seconds);
// Formats a mean as verbose 1 (`absolute`) or verbose 2 prints it: "0.5000", "1.0000e-03", "nan".
std::string progress_number(double value, bool absolute);
// Of several: " - accuracy: 0.9000 - loss: 0.5000".
std::string metrics_text(const Logs& values, bool absolute);
// "200ms/step", "1s/step", "12us/step".
std::string progress_step_time(double seconds);

}  // namespace meshtrain
