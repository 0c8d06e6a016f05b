#include "data/quantiles.h"

#include <algorithm>
#include <cmath>

namespace meshtrain {
namespace {

// Values in ascending order, and how many each stands for. Keras keeps them in float32.
struct Summary {
  std::vector<float> values, weights;
};

// The piecewise linear function through (x, y) at `at`; constant beyond both ends.
double interpolated(double at, const std::vector<double>& x, const std::vector<double>& y) {
  if (at <= x.front()) {
    return y.front();
  }
  if (at >= x.back()) {
    return y.back();
  }
  const auto right = static_cast<size_t>(std::upper_bound(x.begin(), x.end(), at) - x.begin());
  const double slope = (y[right] - y[right - 1]) / (x[right] - x[right - 1]);
  return slope * (at - x[right - 1]) + y[right - 1];
}

// Each k-th value, k such that 1 / epsilon of them are left.
Summary summarized(std::vector<float> values, double epsilon) {
  values.erase(std::remove_if(values.begin(), values.end(), [](float x) { return std::isnan(x); }),
               values.end());
  std::sort(values.begin(), values.end());
  const double increment = static_cast<double>(values.size()) / (1.0 / epsilon);
  const double step = std::max(increment, 1.0);
  Summary out;
  for (auto i = static_cast<size_t>(step - 1); i < values.size(); i += static_cast<size_t>(step)) {
    out.values.push_back(values[i]);
    out.weights.push_back(static_cast<float>(step));
  }
  return out;
}

// Values at equal steps of the sum of weights.
Summary compressed(const Summary& summary, double epsilon) {
  if (static_cast<double>(summary.values.size()) * epsilon < 1) {
    return summary;
  }
  std::vector<double> sums, parts;
  float sum = 0;
  for (const float weight : summary.weights) {
    sum += weight;
    sums.push_back(sum);
  }
  for (const double each : sums) {
    parts.push_back(static_cast<float>(each) / sum);
  }
  const std::vector<double> values(summary.values.begin(), summary.values.end());
  const auto count = static_cast<size_t>(std::ceil(1.0 / epsilon));
  Summary out;
  double before = 0;
  for (size_t i = 0; i < count; ++i) {
    const double part = epsilon + static_cast<double>(i) * epsilon;
    const double weight = interpolated(part, parts, sums);
    out.values.push_back(static_cast<float>(interpolated(part, parts, values)));
    out.weights.push_back(static_cast<float>(weight - before));
    before = weight;
  }
  return out;
}

}  // namespace

std::vector<double> quantile_boundaries(std::vector<float> values, int num_bins, double epsilon) {
  const Summary all = compressed(summarized(std::move(values), epsilon), epsilon);
  const Summary bins = compressed(all, 1.0 / num_bins);
  return {bins.values.begin(), bins.values.empty() ? bins.values.end() : bins.values.end() - 1};
}

}  // namespace meshtrain
