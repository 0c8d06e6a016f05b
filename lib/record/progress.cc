#include "record/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"

namespace meshtrain {
namespace {

constexpr int kBarWidth = 20;
constexpr double kInterval = 0.05;  // seconds between drawings
constexpr std::string_view kBlock = "\u2501";
constexpr std::string_view kRest = "\u2500";  // where colours do not tell
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kWhite = "\x1b[37m";
constexpr std::string_view kReset = "\x1b[0m";

std::string repeat(std::string_view text, int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

}  // namespace

std::string progress_count(int64_t current, int64_t target) {
  return target > 0 ? fmt::format("{:>{}}/{}", current, fmt::formatted_size("{}", target), target)
                    : fmt::format("{:>7}/Unknown", current);
}

std::string progress_bar(int64_t current, int64_t target, int width, bool color) {
  const std::string count = progress_count(current, target);
  if (target <= 0) {
    return count;
  }
  const auto painted = [color](std::string_view code, const std::string& text) {
    return color ? fmt::format("{}{}{}", code, text, kReset) : text;
  };
  std::string out = painted(kBold, count);
  if (width == 0) {
    return out;
  }
  const double progress = static_cast<double>(current) / static_cast<double>(target);
  const int64_t filled = static_cast<int64_t>(width * progress);
  return out + " " + (filled > 0 ? painted(kGreen, repeat(kBlock, filled)) : "") +
         painted(kWhite, repeat(color ? kBlock : kRest, width - filled));
}

std::string progress_time(double seconds) {
  const auto part = [](double value) { return static_cast<int64_t>(std::floor(value)); };
  if (seconds > 3600) {
    return fmt::format("{}:{:02}:{:02}", part(seconds / 3600), part(std::fmod(seconds, 3600) / 60),
                       part(std::fmod(seconds, 60)));
  }
  if (seconds > 60) {
    return fmt::format("{}:{:02}", part(seconds / 60), part(std::fmod(seconds, 60)));
  }
  return fmt::format("{}s", static_cast<int64_t>(seconds));
}

std::string metrics_text(const Logs& values, bool absolute) {
  std::string out;
  for (const auto& [name, value] : values) {
    out += fmt::format(" - {}: {}", name, progress_number(value, absolute));
  }
  return out;
}

std::string progress_number(double value, bool absolute) {
  if (std::isnan(value)) {
    return "nan";  // never "-nan"
  }
  const double compared = absolute ? std::fabs(value) : value;
  return compared > 1e-3 ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
}

std::string progress_step_time(double seconds) {
  if (seconds >= 1 || seconds == 0) {
    return fmt::format("{:.0f}s/step", seconds);
  }
  if (seconds >= 1e-3) {
    return fmt::format("{:.0f}ms/step", seconds * 1000.0);
  }
  return fmt::format("{:.0f}us/step", seconds * 1000000.0);
}

Progbar::Progbar(int64_t target, int verbose, Clock now, TextSink write, int64_t done)
    : target_(target),
      done_(done),
      verbose_(verbose),
      now_(std::move(now)),
      write_(std::move(write)),
      start_(now_()) {}

void Progbar::update(int64_t current, const std::function<Logs()>& logs) {
  if (verbose_ != 1) {
    return;  // Keras' callback does not update the other forms: they never exclude the first step
  }
  const double now = now_();
  if (last_drawn_ && now - *last_drawn_ < kInterval) {
    seconds_per_step(current, now);  // remembers the end of the first step
    return;
  }
  take(logs());
  draw(current, now, false);
}

void Progbar::finish(int64_t current, const Logs& logs, const std::string& rates) {
  rates_ = rates;
  target_ = target_ > 0 ? target_ : current;
  take(logs);
  const double now = now_();
  if (verbose_ == 1) {
    draw(target_, now, true);
  } else if (verbose_ == 2 && target_ > 0) {
    // A run that was resumed behind the last step of an epoch, or behind its present limit.
    const std::string times = done_ >= target_
                                  ? "no step left"
                                  : fmt::format("{:.0f}s - {}", now - start_,
                                                progress_step_time(seconds_per_step(target_, now)));
    write_(fmt::format("{} - {}{}{}\n", progress_count(target_, target_), times, rates_,
                       metrics_text(values_, false)));
  }
}

void Progbar::erase() {
  if (verbose_ == 1 && width_ > 0) {
    write_(fmt::format("\r{}\r", std::string(static_cast<size_t>(width_), ' ')));
    width_ = 0;
  }
}

void Progbar::take(const Logs& logs) {
  for (const auto& [name, value] : logs) {
    const auto known = std::find_if(values_.begin(), values_.end(),
                                    [&name = name](const auto& v) { return v.first == name; });
    if (known == values_.end()) {
      values_.emplace_back(name, value);
    } else {
      known->second = value;
    }
  }
}

double Progbar::seconds_per_step(int64_t current, double now) {
  const int64_t steps = current - done_;
  if (steps <= 0) {
    return 0;
  }
  const double per_step = first_step_end_ && steps > 1
                              ? (now - *first_step_end_) / static_cast<double>(steps - 1)
                              : (now - start_) / static_cast<double>(steps);
  if (steps == 1) {
    first_step_end_ = now;
  }
  return per_step;
}

void Progbar::draw(int64_t current, double now, bool final) {
  const double per_step = seconds_per_step(current, now);
  const std::string time = target_ > 0 && !final
                               ? progress_time(per_step * static_cast<double>(target_ - current))
                               : fmt::format("{:.0f}s", now - start_);
  const std::string line =
      fmt::format("{} {}{}{} {}{}{}", progress_bar(current, target_, kBarWidth), kBold, time,
                  kReset, progress_step_time(per_step), rates_, metrics_text(values_, true));
  const auto width = static_cast<int64_t>(visible_width(line));
  std::string out(static_cast<size_t>(width_), '\b');
  out += '\r';
  out += line;
  out.append(static_cast<size_t>(std::max<int64_t>(0, width_ - width)), ' ');
  if (final) {
    out += '\n';
  }
  width_ = final ? 0 : width;
  last_drawn_ = now;
  write_(out);
}

}  // namespace meshtrain
