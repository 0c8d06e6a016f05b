// The optimizers within an optimizer.
#pragma once

#include <string>
#include <vector>

#include "config/object.h"

namespace meshtrain {

// One that updates weights, and the key of these weights in a MultiOptimizer.
struct OptimizerMember {
  std::string key;  // a path of a weight, or a pattern of whole paths
  SourceLoc loc;    // of the optimizer
  const ConfigObject* config;
};

// The optimizers within a LossScaleOptimizer or MultiOptimizer. The first one has no key: it
// updates the weights that no key matches. Any other optimizer is its only member. Those that could
// not be read are left out.
std::vector<OptimizerMember> optimizer_members(const ConfigObject& optimizer);

}  // namespace meshtrain
