// Random models of every layer but Embedding, as training steps in float64 for tests of layouts.
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

}  // namespace meshtrain::testing
