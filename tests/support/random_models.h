// Random models of every layer that has a kernel of its own, or moves data between samples,
// positions or channels, as training steps in float64 for tests of layouts.
#pragma once

#include <string>
#include <vector>

#include "support/layout_case.h"

namespace meshtrain::testing {

struct LayerStep {
  std::string yaml;
  std::vector<std::string> class_names;  // of its layers
  LayoutCase step;
};
LayerStep random_layer_step(Random& random);

// Of all layers that a model may have.
std::vector<std::string> random_layer_classes();

}  // namespace meshtrain::testing
