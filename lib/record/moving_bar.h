// MovingBar: the animation on a terminal. It takes one row at any width and is taken away without a
// trace, so that nothing of it stays between the lines of the record.
//
//   39/43 ━━━━━━━━━━━━━━━━━━━━ 0s 10ms/step (all 2:10) - digit_loss: 0.9404 …
//
// What does not fit is left out: first metrics from the end, then the time of all epochs, then the
// bar.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/logs.h"
#include "record/batch_work.h"
#include "record/progress.h"

namespace meshtrain {

struct MovingBarOptions {
  Clock now;
  TextSink write;
  std::function<int()> columns;  // of the terminal, now
  bool color = true;
  bool has_escapes = true;  // the terminal moves its cursor; false: TERM=dumb
  BatchWork work = {};      // of its steps, for rates
};

class MovingBar {
 public:
  // `label`: before the count ("validation"); `done`: steps of the `steps` that were done before
  // the time started, now.
  MovingBar(std::string label, int64_t steps, int64_t done, MovingBarOptions options);
  ~MovingBar() { erase(); }
  MovingBar(const MovingBar&) = delete;
  MovingBar& operator=(const MovingBar&) = delete;

  // Before the first step: "0/43" and the bar, with a text in place of times.
  void begin(const std::string& text);
  // Draws unless less than 0.05 s passed. `rest`: seconds of the epochs that follow.
  void update(int64_t step, std::optional<double> rest, const std::function<Logs()>& logs);
  void erase();

  double elapsed() const { return options_.now() - start_; }
  // Seconds for each step done since the start; 0 before the first.
  double seconds_per_step(int64_t step) const;

 private:
  void draw(const std::string& line);
  std::string line(int64_t step, const std::string& times,
                   const std::vector<std::string>& parts) const;

  const std::string label_;
  const int64_t steps_, done_;
  const MovingBarOptions options_;
  const double start_;
  std::optional<double> last_drawn_;
  int cells_ = 0;  // of the drawing on the screen
};

}  // namespace meshtrain
