#include "nn/auc.h"

#include <algorithm>
#include <cmath>

#include "nn/metric_parts.h"

namespace meshtrain {
namespace {

struct Point {
  double x, y;
};

Point roc(double tp, double fp, double tn, double fn) {
  return {ratio(fp, fp + tn), ratio(tp, tp + fn)};
}

Point precision_recall(double tp, double fp, double, double fn) {
  return {ratio(tp, tp + fn), ratio(tp, tp + fp)};
}

// Without true positives both gains diverge: recall gain 0 and precision gain 1 stand for them.
Point gains(double tp, double fp, double tn, double fn) {
  if (tp == 0) {
    return {0, 1};
  }
  const double odds = ratio(tp + fn, tn + fp);
  return {std::max(1 - odds * fn / tp, 0.0), 1 - odds * fp / tp};
}

double interpolated_precision_recall(const CurveCounts& counts) {
  const auto& tp = counts.true_positives;
  const auto& fp = counts.false_positives;
  double area = 0;
  for (size_t i = 0; i + 1 < tp.size(); ++i) {
    const double here = tp[i] + fp[i];
    const double next = tp[i + 1] + fp[i + 1];
    const double slope = ratio(tp[i] - tp[i + 1], std::max(here - next, 0.0));
    const double intercept = tp[i + 1] - slope * next;
    const double step = here > 0 && next > 0 ? here / next : 1.0;
    const double share = slope * (tp[i] - tp[i + 1] + intercept * std::log(step));
    area += ratio(share, std::max(tp[i + 1] + counts.false_negatives[i + 1], 0.0));
  }
  return area;
}

}  // namespace

double area_under_curve(const CurveCounts& counts, const std::string& curve,
                        const std::string& method) {
  if (curve == "PR" && method == "interpolation") {
    return interpolated_precision_recall(counts);
  }
  const auto point_of = curve == "ROC" ? roc : curve == "PR" ? precision_recall : gains;
  std::vector<Point> points;
  for (size_t i = 0; i < counts.true_positives.size(); ++i) {
    points.push_back(point_of(counts.true_positives[i], counts.false_positives[i],
                              counts.true_negatives[i], counts.false_negatives[i]));
  }
  double area = 0;
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const double here = points[i].y;
    const double next = points[i + 1].y;
    const double height = method == "interpolation" ? (here + next) / 2
                          : method == "minoring"    ? std::min(here, next)
                                                    : std::max(here, next);
    area += (points[i].x - points[i + 1].x) * height;
  }
  return area;
}

}  // namespace meshtrain
