// Activations as graph ops, shared by the layers and the losses. Gradients follow JAX's choices:
// relu has gradient 0 at 0, piecewise functions take the branch that their comparison names.
#pragma once

#include <string>
#include <vector>

#include "config/object.h"
#include "ir/builder.h"

namespace meshtrain {

// x > threshold: x up to `max_value` (infinity: none); else negative_slope * (x - threshold).
ValueId relu(Builder& b, ValueId x, double negative_slope, double max_value, double threshold);
ValueId leaky_relu(Builder& b, ValueId x, double negative_slope);
ValueId elu(Builder& b, ValueId x, double alpha);

// Axes count from 0, negative ones from the end. The row's maximum is taken out first.
ValueId softmax(Builder& b, ValueId x, const std::vector<int64_t>& axes);
ValueId log_softmax(Builder& b, ValueId x, const std::vector<int64_t>& axes);

// The shape of the named activation of `shape` (glu halves a dimension), or in `problem` why there
// is none: "has no axis 3".
Shape activation_shape(const ConfigValue& activation, Shape shape, std::string& problem);

}  // namespace meshtrain
