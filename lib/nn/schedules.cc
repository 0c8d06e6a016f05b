#include "nn/schedules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "nn/arguments.h"

namespace meshtrain {
namespace {

using Schedule = double (*)(const ConfigObject&, double step);

// step / decay_steps, whole with `staircase`.
double elapsed(const ConfigObject& s, double step) {
  const double periods = step / s.number("decay_steps");
  return s.boolean("staircase") ? std::floor(periods) : periods;
}

double exponential(const ConfigObject& s, double step) {
  return s.number("initial_learning_rate") * std::pow(s.number("decay_rate"), elapsed(s, step));
}

double inverse_time(const ConfigObject& s, double step) {
  return s.number("initial_learning_rate") / (1 + s.number("decay_rate") * elapsed(s, step));
}

double piecewise(const ConfigObject& s, double step) {
  const std::vector<double> boundaries = numbers_of(s.arg("boundaries"));
  const std::vector<double> values = numbers_of(s.arg("values"));
  size_t i = 0;
  while (i < boundaries.size() && step > boundaries[i]) {
    ++i;
  }
  return values[i];
}

double polynomial(const ConfigObject& s, double step) {
  const double start = s.number("initial_learning_rate");
  const double end = s.number("end_learning_rate");
  double steps = s.number("decay_steps");
  if (s.boolean("cycle")) {
    steps *= step == 0 ? 1 : std::ceil(step / steps);
  } else {
    step = std::min(step, steps);
  }
  return (start - end) * std::pow(1 - step / steps, s.number("power")) + end;
}

double cosine(double from, double fraction, double alpha) {
  return from * ((1 - alpha) * 0.5 * (1 + std::cos(M_PI * fraction)) + alpha);
}

double cosine_decay(const ConfigObject& s, double step) {
  const double start = s.number("initial_learning_rate");
  const double steps = s.number("decay_steps");
  const double alpha = s.number("alpha");
  if (!s.has("warmup_target")) {
    return cosine(start, std::min(step, steps) / steps, alpha);
  }
  const double target = s.number("warmup_target");
  const double warmup = s.number("warmup_steps");
  step = std::min(step, warmup + steps);
  if (step < warmup) {
    return start + (target - start) * step / warmup;
  }
  return cosine(target, (step - warmup) / steps, alpha);
}

double cosine_decay_restarts(const ConfigObject& s, double step) {
  const double growth = s.number("t_mul");
  const double shrink = s.number("m_mul");
  const double completed = step / s.number("first_decay_steps");
  // In first periods: period i lasts growth^i and begins at `before`.
  double period = 0, length = 1, before = 0;
  if (growth == 1) {
    period = before = std::floor(completed);
  } else {
    while (completed >= before + length && length > 0) {
      before += length;
      length *= growth;
      ++period;
    }
  }
  const double fraction = (completed - before) / length;
  const double alpha = s.number("alpha");
  const double amplitude = std::pow(shrink, period);
  return s.number("initial_learning_rate") *
         ((1 - alpha) * 0.5 * amplitude * (1 + std::cos(M_PI * fraction)) + alpha);
}

const std::map<std::string, Schedule, std::less<>>& schedule_table() {
  static const std::map<std::string, Schedule, std::less<>> kTable = {
      {"exponentialdecay", exponential},     {"inversetimedecay", inverse_time},
      {"piecewiseconstantdecay", piecewise}, {"polynomialdecay", polynomial},
      {"cosinedecay", cosine_decay},         {"cosinedecayrestarts", cosine_decay_restarts}};
  return kTable;
}

}  // namespace

double schedule_rate(const ConfigObject& schedule, int64_t step) {
  const auto found = schedule_table().find(name_key(schedule.class_name));
  MESHTRAIN_CHECK(found != schedule_table().end(), "no schedule {}", schedule.class_name);
  return found->second(schedule, static_cast<double>(step));
}

}  // namespace meshtrain
