// Small global graphs of training steps, built straight with the Builder: what the passes' tests
// compile.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace meshtrain::testing {

// A training step in the making: x (batch, width) and a weight per add_weight; finish() adds mean
// square loss against y, gradients and plain gradient descent.
class StepBuilder {
 public:
  StepBuilder(int64_t batch, int64_t width, int64_t classes, DType dtype = DType::kFloat64);

  Graph graph;
  Builder b{graph};
  ValueId x, y;

  // A trainable weight; returns its use.
  ValueId weight(const std::string& path, Shape shape);
  // x W (+ bias): weights "<name>/kernel", "<name>/bias".
  ValueId dense(const std::string& name, ValueId input, int64_t units, bool bias);
  // Adds loss, gradients and updates for prediction `p`; the graph is then complete.
  Graph finish(ValueId p);
  // The same for another loss.
  Graph finish_loss(ValueId loss);

 private:
  DType dtype_;
  std::vector<ValueId> parameters_;
};

}  // namespace meshtrain::testing
