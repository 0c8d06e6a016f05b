#include "train/engine_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "engine/signals.h"
#include "exec/executor.h"

namespace meshtrain {

std::string EngineComparison::run(const Dataset& train, const BatchRows& batches) {
  std::string differs = variables("before the first step");
  for (size_t step = 0; step < batches.size() && differs.empty(); ++step) {
    throw_if_stopped(fmt::format("step {} of {}", step, batches.size()));
    const Batch batch{&train, batches[step]};
    one_.train_step(batch);
    mesh_.train_step(batch);
    const std::string when = fmt::format("after step {}", step + 1);
    differs = number("the loss", one_.last_loss(), mesh_.last_loss(), when);
    const std::string tensors = variables(when);
    differs += differs.empty() || tensors.empty() ? tensors : "; " + tensors;
  }
  const Logs a = one_.logs(), b = mesh_.logs();
  for (size_t i = 0; i < a.size() && differs.empty(); ++i) {
    differs = number("metric `" + a[i].first + "`", a[i].second, b[i].second, "at the end");
  }
  return differs;
}

double EngineComparison::difference(double a, double b, const std::string& what) {
  const bool both_nan = std::isnan(a) && std::isnan(b);
  const double out = a == b || both_nan ? 0 : std::abs(a - b) / std::max(1.0, std::abs(a));
  if (out > largest_ || std::isnan(out)) {
    largest_ = out;
    largest_at_ = what;
  }
  return out;
}

std::string EngineComparison::number(const std::string& what, double a, double b,
                                     const std::string& when) {
  const double apart = difference(a, b, what);
  return apart <= tolerance_ ? ""
                             : fmt::format("{} is {} on one device and {} here, {}", what,
                                           format_shortest(a), format_shortest(b), when);
}

// Weights in Keras' order, then the optimizer's state.
std::string EngineComparison::variables(const std::string& when) {
  VariableStore &a = one_.store(), &b = mesh_.store();
  std::string first;
  int others = 0;
  for (size_t v = 0; v < a.variables().size(); ++v) {
    const Variable& variable = a.variables()[v];
    if (variable.role == VariableRole::kMetric) {
      continue;
    }
    const std::string differs =
        tensor(variable.path, a.read(static_cast<int>(v)), b.read(b.find(variable.path)), when);
    others += !differs.empty() && !first.empty() ? 1 : 0;
    first = first.empty() ? differs : first;
  }
  return others > 0 ? fmt::format("{}; so do {} other tensors", first, others) : first;
}

std::string EngineComparison::tensor(const std::string& path, const HostTensor& a,
                                     const HostTensor& b, const std::string& when) {
  for (int64_t i = 0; i < a.size(); ++i) {
    const double apart = difference(a.at(i), b.at(i), path);
    if (!(apart <= tolerance_)) {
      return fmt::format("`{}`{} differs {}: element {} is {} on one device and {} here", path,
                         shape_string(a.shape()), when, i, format_shortest(a.at(i)),
                         format_shortest(b.at(i)));
    }
  }
  return "";
}

}  // namespace meshtrain
