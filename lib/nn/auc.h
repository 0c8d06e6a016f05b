// Areas under the curves of threshold metrics, on the host.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

// Counts at each threshold, ascending.
struct CurveCounts {
  std::vector<double> true_positives, false_positives, true_negatives, false_negatives;
};

// Area under the curve "ROC", "PR" or "PRGAIN" by the method "interpolation", "minoring" or
// "majoring". Source: Keras 3 metrics/confusion_metrics.py; Davis and Goadrich 2006 for the
// interpolation between points of precision and recall; Flach and Kull 2015 for the gains.
double area_under_curve(const CurveCounts& counts, const std::string& curve,
                        const std::string& method);

}  // namespace meshtrain
