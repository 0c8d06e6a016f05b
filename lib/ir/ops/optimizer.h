// Which operands an optimizer_update node has; the formulas are at the top of optimizer.cc.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// param, grad, `num_slots` slots, rate (or alpha), and decay_rate with `has_decay`.
struct OptimizerOperands {
  int num_slots = 0;
  bool has_decay = false;

  size_t size() const { return 3 + static_cast<size_t>(num_slots) + (has_decay ? 1 : 0); }
};

// Throws InternalError when the kind is unknown or an attribute of it is missing.
OptimizerOperands optimizer_operands(const Node& node);

}  // namespace meshtrain
