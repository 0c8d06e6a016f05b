// Layouts of the values that layers with experts pin (nn/model.h, ExpertPin): they follow from the
// layouts of the experts' weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/model.h"

namespace meshtrain {

struct PlacedPin {
  std::string key;  // "moe/experts/hidden"
  ExpertPin pin;
  AxisList experts;   // the axes of the layer's experts
  size_t weight = 0;  // whose layout says so, of model.weights()
};

// The pins of all layers whose experts are split. `weights`: the layouts of model.weights(). Pins
// that only move steps are left out where no axis of `batch_axes` splits experts.
std::vector<PlacedPin> place_expert_pins(const Model& model, const std::vector<Sharding>& weights,
                                         const AxisList& batch_axes);

// Its layout. `batch_axes`: empty for a batch that they do not divide.
Sharding layout_of(const PlacedPin& placed, const AxisList& batch_axes);

}  // namespace meshtrain
