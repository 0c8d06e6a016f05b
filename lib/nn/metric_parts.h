// Shared by the files of the metrics.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/loss_functions.h"
#include "nn/metric.h"

namespace meshtrain {

// The request of make_metric.
struct MetricRequest {
  const ConfigObject& config;
  std::string key;       // name_key of the class to compute: "binaryaccuracy"
  std::string name;      // in the logs
  Shape y_true, y_pred;  // with the batch, kUnknownDim
  const NamedShapes& outputs;
  DType dtype;  // of the states
  Diagnostics& diagnostics;

  // E123 with both shapes.
  Diagnostic& shape_error() const;
  // E113 at the argument: "metric `auc`: `label_weights` has ...".
  Diagnostic& argument_error(std::string_view argument, const std::string& problem) const;
  // Reports shapes that this loss could not compare.
  bool shapes_fit(const std::string& loss) const;
};

// The metric of the family, or nothing when the class is of another. Problems are reported; the
// metric that comes back then must not be used.
std::optional<Metric> make_accuracy_metric(const MetricRequest& request);   // accuracy_metrics.cc
std::optional<Metric> make_threshold_metric(const MetricRequest& request);  // threshold_metrics.cc
std::optional<Metric> make_overlap_metric(const MetricRequest& request);    // overlap_metrics.cc
std::optional<Metric> make_score_metric(const MetricRequest& request);      // score_metrics.cc

// One value per sample (or position) in the dtype of the state.
using ValuesFunction =
    std::function<LossValues(Builder&, ValueId y_true, ValueId y_pred, DType state_dtype)>;
// total / count of these values; a mask counts beside sample weights only, as in Keras.
Metric mean_of(std::string name, ValuesFunction values_of);

// The weights of samples laid out over `values`, which they broadcast to: (B,) beside (B, T)
// becomes (B, 1). kNone is returned as it is.
ValueId weight_beside(Builder& b, ValueId weight, ValueId values);
// Elements of state `index` as doubles.
std::vector<double> state_values(const std::vector<HostTensor>& state, size_t index);
// a / b, 0 where b is 0.
inline double ratio(double a, double b) {
  return b == 0 ? 0 : a / b;
}

}  // namespace meshtrain
