// The targets that an output is compared with, where no data tell.
#pragma once

#include <vector>

#include "config/object.h"
#include "ir/op.h"
#include "nn/metric.h"

namespace meshtrain {

// What `compile` says of one output.
struct ComparedOutput {
  const ConfigObject* loss = nullptr;  // null: none
  std::vector<const ConfigObject*> metrics;
  Shape y_pred;  // with the batch
};

// Shape, with the batch, and dtype of the targets that loss and metrics take. An expression, the
// word `crossentropy` and an output without a loss leave it open: then it is the first of these
// shapes that expression and metrics compute with: that of the output, ids of its classes, one
// number for each sample. `floatx` is the dtype of numbers.
ValueType implied_targets(const ComparedOutput& output, DType floatx, const NamedShapes& outputs);

}  // namespace meshtrain
