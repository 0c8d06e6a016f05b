#include "record/moving_bar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/columns.h"

namespace meshtrain {
namespace {

constexpr double kRedraw = 0.05;  // seconds between drawings
constexpr int kBarWidths[] = {20, 10, 5, 0};
constexpr int kNarrowest = 4;

// At most `width` columns of a text without escapes.
std::string cut(const std::string& text, int width) {
  std::string out;
  int columns = 0;
  for (const char c : text) {
    columns += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u ? 1 : 0;
    if (columns > width) {
      break;
    }
    out += c;
  }
  return out;
}

}  // namespace

MovingBar::MovingBar(std::string label, int64_t steps, int64_t done, MovingBarOptions options)
    : label_(std::move(label)),
      steps_(steps),
      done_(done),
      options_(std::move(options)),
      start_(options_.now()) {}

double MovingBar::seconds_per_step(int64_t step) const {
  return step > done_ ? elapsed() / static_cast<double>(step - done_) : 0;
}

void MovingBar::begin(const std::string& text) {
  draw(line(done_, text, {}));
}

void MovingBar::update(int64_t step, std::optional<double> rest,
                       const std::function<Logs()>& logs) {
  const double now = options_.now();
  if (last_drawn_ && now - *last_drawn_ < kRedraw) {
    return;
  }
  last_drawn_ = now;
  const double per_step = seconds_per_step(step);
  const double left = per_step * static_cast<double>(std::max<int64_t>(0, steps_ - step));
  std::vector<std::string> parts;
  if (rest) {
    parts.push_back(fmt::format(" (all {})", progress_time(left + *rest)));
  }
  for (const auto& log : logs()) {
    parts.push_back(metrics_text({log}, true));
  }
  const std::string rates = rates_text(options_.work, per_step);
  if (!rates.empty())
    parts.insert(parts.begin(), rates);
  draw(line(step, fmt::format("{} {}", progress_time(left), progress_step_time(per_step)), parts));
}

// As much of it as fits into a row. The last column stays free: a terminal that has written it may
// begin the next row.
std::string MovingBar::line(int64_t step, const std::string& times,
                            const std::vector<std::string>& parts) const {
  const int width = std::max(kNarrowest, options_.columns()) - 1;
  const std::string label = label_.empty() ? "" : label_ + " ";
  const std::string count = progress_count(step, steps_);
  const auto fits = [width](const std::string& text) {
    return static_cast<int>(visible_width(text)) <= width;
  };
  for (const std::string& before : {label, std::string()}) {
    for (const int bar : kBarWidths) {
      std::string out = before + progress_bar(step, steps_, bar, options_.color);
      if (!fits(out + " " + times)) {
        continue;
      }
      out += " " + times;
      for (const std::string& part : parts) {
        if (!fits(out + part)) {
          return fits(out + " \u2026") ? out + " \u2026" : out;
        }
        out += part;
      }
      return out;
    }
  }
  return cut(fits(label + count) ? label + count : count, width);
}

// The cursor waits where the drawing begins, so that all of it is behind the cursor, even when a
// narrower terminal has broken it into rows. A terminal is narrower before the program knows it:
// what is too wide for it is cut, not wrapped.
void MovingBar::draw(const std::string& line) {
  const int width = static_cast<int>(visible_width(line));
  const int left = std::max(0, cells_ - width);
  if (options_.has_escapes)
    options_.write(fmt::format("\r\x1b[?7l{}\x1b[J\r\x1b[?7h", line));
  else
    options_.write(fmt::format("\r{}{}", line, std::string(static_cast<size_t>(left), ' ')));
  cells_ = options_.has_escapes ? width : width + left;
}

// What is erased from the top left corner on stays in the history of tmux: so from the second
// column.
void MovingBar::erase() {
  if (cells_ == 0)
    return;
  if (options_.has_escapes)
    options_.write("\r \x1b[J\r");
  else
    options_.write(fmt::format("\r{}\r", std::string(static_cast<size_t>(cells_), ' ')));
  cells_ = 0;
}

}  // namespace meshtrain
