// Source: Keras 3 metrics/metrics_utils.py (which thresholds a prediction passes); the counts come
// from one histogram over "passes so many thresholds" and its running sum.
#include "nn/confusion_counts.h"

#include <algorithm>

#include "nn/graph_parts.h"
#include "nn/metric_parts.h"

namespace meshtrain {
namespace {

constexpr double kNever = -1e10;  // Keras' prediction outside of the k largest

ValueId only_top_k(Builder& b, ValueId p, int64_t k) {
  const ValueId indices = b.top_k(p, k)[1];
  const ValueId kept = b.one_hot(indices, b.shape(p).back(), b.dtype(p));  // (..., k, classes)
  const ValueId is_kept =
      b.binary("gt", b.reduce_sum(kept, {last_axis(b, p)}), constant_like(b, p, 0));
  return b.select(is_kept, p, constant_like(b, p, kNever));
}

ValueId only_class(Builder& b, ValueId x, int64_t id) {
  return b.slice(x, -1, id, id + 1);
}

// Counts the sorted thresholds below each prediction.
ValueId num_passed(Builder& b, const CountOptions& options, const std::vector<double>& sorted,
                   ValueId p) {
  const DType dtype = b.dtype(p);
  if (options.are_even) {
    const auto intervals = static_cast<double>(sorted.size() - 1);
    const ValueId scaled = b.mul(b.clamp(p, 0, 1), intervals);
    const ValueId ceiling = b.neg(b.unary("floor", b.neg(scaled)));
    return options.first_below_zero ? b.maximum(ceiling, 1.0) : ceiling;
  }
  ValueId count = kNone;
  for (const double threshold : sorted) {
    const ValueId is_above = b.cast(b.binary("gt", p, b.constant(threshold, dtype)), dtype);
    count = count == kNone ? is_above : b.add(count, is_above);
  }
  return count;
}

// Row t becomes the sum of rows t, t + 1, ...
ValueId sum_from_end(Builder& b, ValueId x) {
  return b.reverse(b.cumsum(b.reverse(x, 0), 0), 0);
}

// Rows of x (T, ...) in the order of `places`.
ValueId reordered(Builder& b, ValueId x, const std::vector<size_t>& places) {
  if (std::is_sorted(places.begin(), places.end())) {
    return x;
  }
  std::vector<ValueId> rows;
  for (const size_t place : places) {
    const auto row = static_cast<int64_t>(place);
    rows.push_back(b.slice(x, 0, row, row + 1));
  }
  return b.concat(rows, 0);
}

struct Histogram {
  ValueId passed;             // counts of thresholds passed, like the predictions
  int64_t num_rows = 0;       // thresholds + 1
  int64_t labels = 0;         // 0: all labels together
  std::vector<size_t> order;  // of the thresholds given among the sorted ones
};

// Weights summed from the end of the histogram: (rows) or (rows, labels). Row 0 is the total.
ValueId summed(Builder& b, const Histogram& histogram, ValueId weights) {
  ValueId ids = b.cast(histogram.passed, DType::kInt32);
  int64_t rows = histogram.num_rows;
  if (histogram.labels > 0) {
    const ValueId label = b.iota(b.shape(ids), 1, DType::kInt32);
    const ValueId width = b.constant(static_cast<double>(histogram.labels), DType::kInt32);
    ids = b.add(b.mul(ids, width), label);
    rows *= histogram.labels;
  }
  ValueId table = add_exactly(b, weights, ids, rows);
  if (histogram.labels > 0) {
    table = b.reshape(table, {histogram.num_rows, histogram.labels});
  }
  return sum_from_end(b, table);
}

}  // namespace

ValueId add_exactly(Builder& b, ValueId weights, ValueId ids, int64_t rows) {
  constexpr int64_t kExact = int64_t{1} << 24;  // adding ones in float32 ends there
  const DType dtype = b.dtype(weights);
  if (dtype != DType::kFloat32 || num_elements(b.shape(weights)) < kExact) {
    return b.scatter_add_rows(weights, ids, rows);
  }
  return b.cast(b.scatter_add_rows(b.cast(weights, DType::kFloat64), ids, rows), dtype);
}

ConfusionCounts count_confusion(Builder& b, const CountOptions& options, ValueId y, ValueId p,
                                ValueId weight) {
  const DType dtype = b.dtype(p);
  if (options.top_k > 0) {
    p = only_top_k(b, p, options.top_k);
  }
  if (options.class_id) {
    y = only_class(b, y, *options.class_id);
    p = only_class(b, p, *options.class_id);
  }
  const ValueId is_positive = b.binary("ne", y, b.constant(0, dtype));
  const ValueId zero = b.constant(0, dtype);
  ValueId weights = b.broadcast_to(b.constant(1, dtype), b.shape(p));
  if (weight != kNone) {
    weights = b.mul(weights, weight_beside(b, weight, p));
  }
  if (!options.label_weights.empty()) {
    weights = b.mul(weights, vector_of(b, options.label_weights, dtype));
  }

  std::vector<double> sorted = options.thresholds;
  std::sort(sorted.begin(), sorted.end());
  Histogram histogram;
  histogram.num_rows = static_cast<int64_t>(sorted.size()) + 1;
  histogram.labels = options.multi_label ? b.shape(p)[1] : 0;
  histogram.passed = num_passed(b, options, sorted, p);
  for (const double threshold : options.thresholds) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), threshold);
    histogram.order.push_back(static_cast<size_t>(place - sorted.begin()));
  }

  const ValueId yes = summed(b, histogram, b.select(is_positive, weights, zero));
  const ValueId no = summed(b, histogram, b.select(is_positive, zero, weights));
  const auto above = [&](ValueId sums) {
    return reordered(b, b.slice(sums, 0, 1, histogram.num_rows), histogram.order);
  };
  return {above(yes), above(no), b.slice(yes, 0, 0, 1), b.slice(no, 0, 0, 1)};
}

}  // namespace meshtrain
