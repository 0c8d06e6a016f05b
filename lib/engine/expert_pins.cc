#include "engine/expert_pins.h"

#include <algorithm>

namespace meshtrain {
namespace {

bool contains(const AxisList& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The axes that split the experts of a layer whose first weight is `first`.
AxisList expert_axes(const Layer& layer, const std::vector<Sharding>& weights, size_t first) {
  for (size_t w = 0; w < layer.weights.size(); ++w) {
    if (layer.weights[w].expert_dim != kNone) {
      return weights[first + w].dims[static_cast<size_t>(layer.weights[w].expert_dim)];
    }
  }
  return {};
}

}  // namespace

std::vector<PlacedPin> place_expert_pins(const Model& model, const std::vector<Sharding>& weights,
                                         const AxisList& batch_axes) {
  std::vector<PlacedPin> out;
  size_t first = 0;
  for (const auto& layer : model.layers()) {
    const AxisList axes = expert_axes(*layer, weights, first);
    first += layer->weights.size();
    const bool moves =
        std::any_of(axes.begin(), axes.end(), [&](int axis) { return contains(batch_axes, axis); });
    for (const ExpertPin& pin : layer->expert_pins()) {
      if (!axes.empty() && (moves || !pin.only_moves)) {
        out.push_back({layer->name + "/" + pin.key, pin, axes});
      }
    }
  }
  return out;
}

Sharding layout_of(const PlacedPin& placed, const AxisList& batch_axes) {
  Sharding out = Sharding::replicated(placed.pin.rank);
  const bool splits_experts = placed.pin.expert_dim != kNone;
  if (splits_experts) {
    out.dims[static_cast<size_t>(placed.pin.expert_dim)] = placed.experts;
  }
  for (const int axis : batch_axes) {
    if (!splits_experts || !contains(placed.experts, axis)) {
      out.dims[static_cast<size_t>(placed.pin.batch_dim)].push_back(axis);
    }
  }
  return out;
}

}  // namespace meshtrain
