// Metrics that count hits and misses at thresholds. Source: Keras 3 metrics/confusion_metrics.py.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/auc.h"
#include "nn/confusion_counts.h"
#include "nn/metric_parts.h"

namespace meshtrain {
namespace {

constexpr double kBelowAll = -1e10;  // the threshold that what is among the k largest passes

enum class Count { kTruePositives, kFalsePositives, kTrueNegatives, kFalseNegatives };

const char* count_name(Count count) {
  constexpr const char* kNames[] = {"true_positives", "false_positives", "true_negatives",
                                    "false_negatives"};
  return kNames[static_cast<int>(count)];
}

// Keras' test for thresholds that it counts by arithmetic.
bool are_even(const std::vector<double>& thresholds) {
  const size_t count = thresholds.size();
  for (size_t i = 0; i < count; ++i) {
    const double even = static_cast<double>(i) / static_cast<double>(count - 1);
    if (count < 3 || std::abs(thresholds[i] - even) > kEpsilon + 1e-5 * even) {
      return false;
    }
  }
  return count >= 3;
}

ValueId value_of(Builder& b, const ConfusionCounts& counts, Count count) {
  switch (count) {
    case Count::kTruePositives:
      return counts.true_positives;
    case Count::kFalsePositives:
      return counts.false_positives;
    case Count::kTrueNegatives:
      return b.sub(counts.negatives, counts.false_positives);
    case Count::kFalseNegatives:
      return b.sub(counts.positives, counts.true_positives);
  }
  return kNone;
}

// A metric whose states are these counts at the thresholds.
Metric counting(const std::string& name, const CountOptions& options,
                const std::vector<Count>& counts, std::vector<Metric::State> states,
                bool from_logits = false) {
  Metric metric;
  metric.name = name;
  metric.states = std::move(states);
  metric.update = [=](Builder& b, ValueId y, ValueId p, ValueId weight,
                      std::span<const ValueId> state) {
    const Builder::Scope scope = b.scope("metric_" + name);
    const DType dtype = b.dtype(state[0]);
    y = b.cast(y, dtype);
    p = b.cast(p, dtype);
    to_same_rank(b, p, y);
    const ConfusionCounts batch =
        count_confusion(b, options, y, from_logits ? b.unary("sigmoid", p) : p, weight);
    std::vector<ValueId> fresh;
    for (size_t i = 0; i < counts.size(); ++i) {
      fresh.push_back(b.add(state[i], value_of(b, batch, counts[i])));
    }
    return fresh;
  };
  return metric;
}

std::vector<Metric::State> states_of(const std::vector<Count>& counts, const Shape& shape) {
  std::vector<Metric::State> states;
  for (const Count count : counts) {
    states.push_back({count_name(count), shape});
  }
  return states;
}

// class_id and top_k, checked against the output.
void take_classes(const MetricRequest& request, CountOptions& options) {
  const int64_t classes = request.y_pred.empty() ? 0 : request.y_pred.back();
  if (request.config.has("class_id")) {
    options.class_id = request.config.integer("class_id");
    if (*options.class_id < 0 || *options.class_id >= classes) {
      request
          .argument_error("class_id",
                          fmt::format("is {}; the output {} has {} classes", *options.class_id,
                                      shape_string(request.y_pred), classes))
          .help("classes count from 0");
    }
  }
  options.top_k = integer_or(request.config, "top_k", 0);
  if (options.top_k > classes) {
    request
        .argument_error("top_k", fmt::format("is {}; the output {} has {} classes", options.top_k,
                                             shape_string(request.y_pred), classes))
        .help(fmt::format("write at most {}", classes));
  }
}

CountOptions listed_thresholds(const MetricRequest& request) {
  CountOptions options;
  take_classes(request, options);
  options.thresholds = request.config.has("thresholds")
                           ? numbers_of(request.config.arg("thresholds"))
                           : std::vector{options.top_k > 0 ? kBelowAll : 0.5};
  options.are_even = are_even(options.thresholds);
  return options;
}

// TruePositives, FalsePositives, ...: the count itself.
Metric make_count(const MetricRequest& request, Count count) {
  const CountOptions options = listed_thresholds(request);
  const auto size = static_cast<int64_t>(options.thresholds.size());
  Metric metric = counting(request.name, options, {count}, {{"accumulator", {size}}});
  metric.result = [](const std::vector<HostTensor>& state) { return state_values(state, 0); };
  metric.has_direction = false;
  return metric;
}

// Precision and Recall: true positives among all that `other` completes.
Metric make_share(const MetricRequest& request, Count other) {
  const CountOptions options = listed_thresholds(request);
  const auto size = static_cast<int64_t>(options.thresholds.size());
  const std::vector<Count> counts = {Count::kTruePositives, other};
  Metric metric = counting(request.name, options, counts, states_of(counts, {size}));
  metric.result = [](const std::vector<HostTensor>& state) {
    std::vector<double> out = state_values(state, 0);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = ratio(out[i], out[i] + state[1].at(static_cast<int64_t>(i)));
    }
    return out;
  };
  metric.larger_is_better = true;
  return metric;
}

const std::vector<Count> kAllCounts = {Count::kTruePositives, Count::kFalsePositives,
                                       Count::kTrueNegatives, Count::kFalseNegatives};

// n thresholds from 0 to 1; one is 0.5.
std::vector<double> spread_thresholds(int64_t n) {
  if (n == 1) {
    return {0.5};
  }
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<double>(i) / static_cast<double>(n - 1));
  }
  return out;
}

using Rate = double (*)(double tp, double fp, double tn, double fn);
double sensitivity(double tp, double, double, double fn) {
  return ratio(tp, tp + fn);
}
double specificity(double, double fp, double tn, double) {
  return ratio(tn, tn + fp);
}
double precision(double tp, double fp, double, double) {
  return ratio(tp, tp + fp);
}

// The best of `wanted` over the thresholds where `limited` reaches the argument.
Metric make_best(const MetricRequest& request, Rate wanted, Rate limited, const char* argument) {
  CountOptions options;
  take_classes(request, options);
  options.thresholds = spread_thresholds(request.config.integer("num_thresholds"));
  options.are_even = options.thresholds.size() > 1;
  const auto size = static_cast<int64_t>(options.thresholds.size());
  Metric metric = counting(request.name, options, kAllCounts, states_of(kAllCounts, {size}));
  const double least = request.config.number(argument);
  metric.result = [=](const std::vector<HostTensor>& state) {
    double best = 0;
    for (int64_t i = 0; i < size; ++i) {
      const double tp = state[0].at(i), fp = state[1].at(i), tn = state[2].at(i),
                   fn = state[3].at(i);
      // Keras compares in float32, the precision of the states.
      if (static_cast<float>(limited(tp, fp, tn, fn)) >= static_cast<float>(least)) {
        best = std::max(best, wanted(tp, fp, tn, fn));
      }
    }
    return std::vector{best};
  };
  metric.larger_is_better = true;
  return metric;
}

// Thresholds of AUC: between them one a little below 0 and one a little above 1.
void take_auc_thresholds(const MetricRequest& request, CountOptions& options) {
  if (request.config.has("thresholds")) {
    options.thresholds = numbers_of(request.config.arg("thresholds"));
    std::sort(options.thresholds.begin(), options.thresholds.end());
    options.thresholds.insert(options.thresholds.begin(), 0);
    options.thresholds.push_back(1);
    options.are_even = are_even(options.thresholds);
  } else {
    options.thresholds = spread_thresholds(request.config.integer("num_thresholds"));
    options.are_even = true;
  }
  options.thresholds.front() = -kEpsilon;
  options.thresholds.back() = 1 + kEpsilon;
  options.first_below_zero = true;
}

void check_labels(const MetricRequest& request, bool multi_label,
                  const std::vector<double>& label_weights) {
  const int64_t labels = request.y_pred.back();
  if (multi_label && request.y_pred.size() != 2) {
    request
        .argument_error("multi_label", fmt::format("takes an output (None, labels), not {}",
                                                   shape_string(request.y_pred)))
        .help("leave it out, or let the last layer have one unit per label");
  }
  if (request.config.has("num_labels")) {
    if (!multi_label) {
      request.argument_error("num_labels", "needs `multi_label: true`")
          .help("set that too, or leave `num_labels` out");
    } else if (request.config.integer("num_labels") != labels) {
      request
          .argument_error("num_labels", fmt::format("is {}; the output {} has {}",
                                                    request.config.integer("num_labels"),
                                                    shape_string(request.y_pred), labels))
          .help("leave it out: the output says it");
    }
  }
  if (!label_weights.empty() && static_cast<int64_t>(label_weights.size()) != labels) {
    request
        .argument_error("label_weights",
                        fmt::format("has {} numbers; the output {} has {} labels",
                                    label_weights.size(), shape_string(request.y_pred), labels))
        .help("write one for each label");
  }
}

// Column `label` of states (thresholds, labels).
CurveCounts curve_of(const std::vector<HostTensor>& state, int64_t label, int64_t labels) {
  CurveCounts counts;
  std::vector<double>* const lists[] = {&counts.true_positives, &counts.false_positives,
                                        &counts.true_negatives, &counts.false_negatives};
  for (size_t s = 0; s < 4; ++s) {
    for (int64_t i = label; i < state[s].size(); i += labels) {
      lists[s]->push_back(state[s].at(i));
    }
  }
  return counts;
}

Metric make_auc(const MetricRequest& request) {
  const bool multi_label = request.config.boolean("multi_label");
  std::vector<double> label_weights;
  if (request.config.has("label_weights")) {
    label_weights = numbers_of(request.config.arg("label_weights"));
  }
  check_labels(request, multi_label, label_weights);
  CountOptions options;
  take_auc_thresholds(request, options);
  options.multi_label = multi_label;
  if (!multi_label) {
    options.label_weights = label_weights;  // else they weigh the areas of the labels
  }
  const int64_t labels = multi_label ? request.y_pred.back() : 1;
  Shape shape = {static_cast<int64_t>(options.thresholds.size())};
  if (multi_label) {
    shape.push_back(labels);
  }
  Metric metric = counting(request.name, options, kAllCounts, states_of(kAllCounts, shape),
                           request.config.boolean("from_logits"));
  std::string curve = request.config.string("curve");
  std::transform(curve.begin(), curve.end(), curve.begin(), ::toupper);
  const std::string method = to_lower(request.config.string("summation_method"));
  metric.result = [=](const std::vector<HostTensor>& state) {
    double area = 0, weights = 0;
    for (int64_t label = 0; label < labels; ++label) {
      const bool weighs = multi_label && !label_weights.empty();
      const double weight = weighs ? label_weights[static_cast<size_t>(label)] : 1;
      area += weight * area_under_curve(curve_of(state, label, labels), curve, method);
      weights += weight;
    }
    return std::vector{ratio(area, weights)};
  };
  metric.larger_is_better = true;
  return metric;
}

}  // namespace

std::optional<Metric> make_threshold_metric(const MetricRequest& request) {
  using Maker = Metric (*)(const MetricRequest&);
  static const std::vector<std::pair<std::string_view, Maker>> kMakers = {
      {"truepositives", [](auto& r) { return make_count(r, Count::kTruePositives); }},
      {"falsepositives", [](auto& r) { return make_count(r, Count::kFalsePositives); }},
      {"truenegatives", [](auto& r) { return make_count(r, Count::kTrueNegatives); }},
      {"falsenegatives", [](auto& r) { return make_count(r, Count::kFalseNegatives); }},
      {"precision", [](auto& r) { return make_share(r, Count::kFalsePositives); }},
      {"recall", [](auto& r) { return make_share(r, Count::kFalseNegatives); }},
      {"sensitivityatspecificity",
       [](auto& r) { return make_best(r, sensitivity, specificity, "specificity"); }},
      {"specificityatsensitivity",
       [](auto& r) { return make_best(r, specificity, sensitivity, "sensitivity"); }},
      {"precisionatrecall", [](auto& r) { return make_best(r, precision, sensitivity, "recall"); }},
      {"recallatprecision",
       [](auto& r) { return make_best(r, sensitivity, precision, "precision"); }},
      {"auc", make_auc}};
  for (const auto& [key, make] : kMakers) {
    if (key == request.key) {
      return request.shapes_fit("MeanSquaredError") ? make(request) : make_mean(request.name);
    }
  }
  return std::nullopt;
}

}  // namespace meshtrain
