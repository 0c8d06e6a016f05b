#include "engine/expert_pins.h"

#include <algorithm>

namespace meshtrain {
namespace {

bool contains(const AxisList& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The first weight with experts, of those of a layer.
size_t expert_weight(const Layer& layer) {
  const auto found = std::find_if(layer.weights.begin(), layer.weights.end(),
                                  [](const auto& weight) { return weight.expert_dim != kNone; });
  return static_cast<size_t>(found - layer.weights.begin());
}

}  // namespace

std::vector<PlacedPin> place_expert_pins(const Model& model, const std::vector<Sharding>& weights,
                                         const AxisList& batch_axes) {
  std::vector<PlacedPin> out;
  size_t first = 0;
  for (const auto& layer : model.layers()) {
    const size_t own = expert_weight(*layer), weight = first + own;
    first += layer->weights.size();
    if (own == layer->weights.size()) {
      continue;
    }
    const AxisList axes = weights[weight].dims[static_cast<size_t>(layer->weights[own].expert_dim)];
    const bool moves =
        std::any_of(axes.begin(), axes.end(), [&](int axis) { return contains(batch_axes, axis); });
    for (const ExpertPin& pin : layer->expert_pins()) {
      if (!axes.empty() && (moves || !pin.only_moves)) {
        out.push_back({layer->name + "/" + pin.key, pin, axes, weight});
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
