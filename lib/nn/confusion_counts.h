// True and false positives of a batch at many thresholds at once.
#pragma once

#include <optional>
#include <vector>

#include "ir/builder.h"

namespace meshtrain {

struct CountOptions {
  std::vector<double> thresholds;  // a prediction above one is a yes
  // 0, 1/(n-1), ..., 1: the number of thresholds below a prediction is arithmetic, in the dtype of
  // the predictions, as Keras computes it. Otherwise they are compared one by one.
  bool are_even = false;
  bool first_below_zero = false;  // are_even: the first one is a little below 0
  int64_t top_k = 0;              // 0: none; else only the k largest of the last axis can be yes
  std::optional<int64_t> class_id;
  bool multi_label = false;  // counts per label of (batch, labels)
  std::vector<double> label_weights;
};

// T thresholds, in the order given: shapes (T), or (T, labels) with multi_label; the totals are of
// shape (1) or (1, labels).
struct ConfusionCounts {
  ValueId true_positives, false_positives;
  ValueId positives, negatives;  // weights of all targets that are not 0, and of those that are
};

// scatter_add_rows(), of float32 in float64 where as many ones as there are weights would not add
// up.
ValueId add_exactly(Builder& b, ValueId weights, ValueId ids, int64_t rows);

// Targets and predictions of one shape (after rank repair) in one float dtype; `weight` of samples
// or kNone. Memory is that of the predictions, whatever the number of thresholds.
ConfusionCounts count_confusion(Builder& b, const CountOptions& options, ValueId y, ValueId p,
                                ValueId weight);

}  // namespace meshtrain
