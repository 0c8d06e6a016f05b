// Random training steps in float64 for tests of layouts: graphs made with the Builder.
#pragma once

#include "support/layout_case.h"

namespace meshtrain::testing {

// One to four layers and blocks on a batch of 8, some of them pinned; lookups, too.
LayoutCase random_graph_step(Random& random);

}  // namespace meshtrain::testing
