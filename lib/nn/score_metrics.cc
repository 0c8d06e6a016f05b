// F scores and R2. Source: Keras 3 metrics/f_score_metrics.py and regression_metrics.py.
#include <cmath>
#include <numeric>

#include "nn/arguments.h"
#include "nn/graph_parts.h"
#include "nn/metric_parts.h"

namespace meshtrain {
namespace {

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Both of rank 2 with the same last dimension.
bool are_rows(const MetricRequest& request, const Shape& y, const Shape& p) {
  if (y.size() == 2 && p.size() == 2 && y[1] == p[1]) {
    return true;
  }
  const bool are_ids = p.size() == 2 && p[1] > 1 && (y.size() == 1 || y.back() == 1);
  request.shape_error().help(
      are_ids
          ? fmt::format("for class ids write `data: {{label: {{one_hot: {}}}}}`, and a loss for "
                        "one-hot targets",
                        p[1])
      : p.size() == 2 ? fmt::format("targets must have the output's shape {}{}", shape_string(p),
                                    y.size() == 1 ? ": of a csv, write `label: [NAME]`" : "")
                      : "it takes targets and outputs of shape (None, classes)");
  return false;
}

// 1 where a class is predicted: above the threshold, or the largest of its row (and not 0).
ValueId decided(Builder& b, ValueId p, std::optional<double> threshold) {
  const DType dtype = b.dtype(p);
  if (threshold) {
    return b.cast(b.binary("gt", p, b.constant(*threshold, dtype)), dtype);
  }
  const ValueId largest = b.reduce_max(p, {1}, /*keepdims=*/true);
  const ValueId is_something = b.binary("gt", b.unary("abs", p), b.constant(1e-9, dtype));
  return b.cast(b.binary("logical_and", b.binary("ge", p, largest), is_something), dtype);
}

std::vector<double> f_scores(const std::vector<HostTensor>& state, const std::string& average,
                             double beta) {
  const std::vector<double> tp = state_values(state, 0), fp = state_values(state, 1),
                            fn = state_values(state, 2), wanted = state_values(state, 3);
  std::vector<double> scores;
  for (size_t i = 0; i < tp.size(); ++i) {
    const double precision = tp[i] / (tp[i] + fp[i] + kEpsilon);
    const double recall = tp[i] / (tp[i] + fn[i] + kEpsilon);
    const double mean = precision * recall / (beta * beta * precision + recall + kEpsilon);
    scores.push_back(mean * (1 + beta * beta));
  }
  if (average == "weighted") {
    const double all = sum_of(wanted) + kEpsilon;
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] *= wanted[i] / all;
    }
    return {sum_of(scores)};
  }
  if (average.empty()) {
    return scores;
  }
  return {sum_of(scores) / static_cast<double>(scores.size())};
}

Metric make_f_score(const MetricRequest& request) {
  const double beta = number_or(request.config, "beta", 1);
  const std::string average = string_or(request.config, "average", "");
  std::optional<double> threshold;
  if (request.config.has("threshold")) {
    threshold = request.config.number("threshold");
  }
  Metric metric;
  metric.name = request.name;
  const Shape shape = average == "micro" ? Shape{} : Shape{request.y_pred.back()};
  for (const char* name :
       {"true_positives", "false_positives", "false_negatives", "intermediate_weights"}) {
    metric.states.push_back({name, shape});
  }
  metric.update = [=, name = request.name](Builder& b, ValueId y, ValueId p, ValueId weight,
                                           std::span<const ValueId> state) {
    const Builder::Scope scope = b.scope("metric_" + name);
    const DType dtype = b.dtype(state[0]);
    y = b.cast(y, dtype);
    p = decided(b, b.cast(p, dtype), threshold);
    const auto add = [&](size_t s, ValueId values) {
      if (weight != kNone) {
        values = b.mul(values, weight_beside(b, weight, values));
      }
      return b.add(state[s],
                   average == "micro" ? b.reduce_sum_all(values) : b.reduce_sum(values, {0}));
    };
    return std::vector{add(0, b.mul(p, y)), add(1, b.mul(p, one_minus(b, y))),
                       add(2, b.mul(one_minus(b, p), y)), add(3, y)};
  };
  metric.result = [=](const std::vector<HostTensor>& state) {
    return f_scores(state, average, beta);
  };
  metric.larger_is_better = true;
  return metric;
}

// States: num_samples, squared_sum, sum, residual, count.
std::vector<double> r2_scores(const std::vector<HostTensor>& state, const std::string& aggregation,
                              int64_t num_regressors) {
  const std::vector<double> squared = state_values(state, 1), sum = state_values(state, 2),
                            residual = state_values(state, 3), count = state_values(state, 4);
  std::vector<double> scores, totals;
  for (size_t i = 0; i < sum.size(); ++i) {
    totals.push_back(squared[i] - sum[i] * sum[i] / count[i]);
    const double score = 1 - residual[i] / totals[i];
    scores.push_back(std::isinf(score) ? 0 : score);
  }
  if (aggregation == "uniform_average") {
    scores = {sum_of(scores) / static_cast<double>(scores.size())};
  } else if (aggregation == "variance_weighted_average") {
    scores = {std::inner_product(totals.begin(), totals.end(), scores.begin(), 0.0) /
              sum_of(totals)};
  }
  // The adjustment needs more samples than regressors; otherwise it is the plain score.
  const double samples = state[0].at(0);
  const auto regressors = static_cast<double>(num_regressors);
  if (num_regressors != 0 && regressors < samples - 1) {
    for (double& score : scores) {
      score = 1 - (1 - score) * (samples - 1) / (samples - regressors - 1);
    }
  }
  return scores;
}

Metric make_r2(const MetricRequest& request) {
  const std::string aggregation = string_or(request.config, "class_aggregation", "");
  const int64_t num_regressors = request.config.integer("num_regressors");
  Metric metric;
  metric.name = request.name;
  metric.states = {{"num_samples", {}}};
  for (const char* name : {"squared_sum", "sum", "residual", "count"}) {
    // The sum of squares about a mean far from 0 is a small difference of large sums.
    metric.states.push_back({name, {request.y_pred.back()}, DType::kFloat64});
  }
  metric.update = [name = request.name](Builder& b, ValueId y, ValueId p, ValueId weight,
                                        std::span<const ValueId> state) {
    const Builder::Scope scope = b.scope("metric_" + name);
    const DType dtype = DType::kFloat64;
    y = b.cast(y, dtype);
    p = b.cast(p, dtype);
    to_same_rank(b, y, p);
    ValueId weights = b.broadcast_to(b.constant(1, dtype), b.shape(y));
    if (weight != kNone) {
      weights = b.mul(weights, weight_beside(b, b.cast(weight, dtype), y));
    }
    const ValueId weighted = b.mul(y, weights);
    const auto sum = [&](ValueId values) { return b.reduce_sum(values, {0}); };
    const auto size = static_cast<double>(num_elements(b.shape(y)));
    return std::vector{b.add(state[0], size), b.add(state[1], sum(b.mul(y, weighted))),
                       b.add(state[2], sum(weighted)),
                       b.add(state[3], sum(b.mul(b.square(b.sub(y, p)), weights))),
                       b.add(state[4], sum(weights))};
  };
  metric.result = [=](const std::vector<HostTensor>& state) {
    return r2_scores(state, aggregation, num_regressors);
  };
  metric.larger_is_better = true;
  return metric;
}

}  // namespace

std::optional<Metric> make_score_metric(const MetricRequest& request) {
  const bool is_f_score = request.key == "f1score" || request.key == "fbetascore";
  if (!is_f_score && request.key != "r2score") {
    return std::nullopt;
  }
  Shape y = request.y_true;
  Shape p = request.y_pred;
  if (!is_f_score) {
    to_same_rank(y, p);
  }
  if (!are_rows(request, y, p)) {
    return make_mean(request.name);
  }
  return is_f_score ? make_f_score(request) : make_r2(request);
}

}  // namespace meshtrain
