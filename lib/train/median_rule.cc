#include "train/median_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/median.h"
#include "record/run_summary.h"

namespace meshtrain {
namespace {

// The values of a log up to and with `epoch`, without those that are not finite.
std::vector<double> values_until(const RunRecord& run, const std::string& log, int64_t epoch) {
  std::vector<double> out;
  for (const RunEpoch& entry : run.epochs) {
    const double* value = find_log(entry.logs, log);
    if (entry.epoch <= epoch && value != nullptr && std::isfinite(*value)) {
      out.push_back(*value);
    }
  }
  return out;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

}  // namespace

std::optional<MedianVerdict> MedianJudge::judge(const RunRecord& run) const {
  constexpr double kEqual = 1e-4;
  if (run.epochs.empty() || run.epochs.back().epoch < rule_.min_epochs) {
    return std::nullopt;
  }
  const RunSession& session = run.sessions.back();
  const bool is_own = !rule_.monitor.empty();
  const std::string& log = is_own ? rule_.monitor : session.monitor;
  const bool larger = is_own ? rule_.larger_is_better : session.larger_is_better;
  const int64_t epoch = run.epochs.back().epoch;
  std::vector<double> own = values_until(run, log, epoch), others;
  for (const RunRecord& other : finished_) {
    if (const std::vector<double> values = values_until(other, log, epoch); !values.empty()) {
      others.push_back(mean(values));
    }
  }
  if (own.empty() || std::ssize(others) < rule_.min_runs) {
    return std::nullopt;
  }
  const double middle = median(others);
  const double best = larger ? *std::max_element(own.begin(), own.end())
                             : *std::min_element(own.begin(), own.end());
  const double gap = larger ? middle - best : best - middle;
  if (!(gap > kEqual * std::max(std::abs(best), std::abs(middle)))) {
    return std::nullopt;
  }
  return MedianVerdict{epoch, log, best, middle,
                       fmt::format("after epoch {}: {} {:.4g}, the median of {} runs is {:.4g}",
                                   epoch, log, best, others.size(), middle)};
}

}  // namespace meshtrain
