// Draws which devices hold which shard of a tensor, as jax.debug.visualize_array_sharding does.
#pragma once

#include <string>

#include "mesh/sharding.h"

namespace meshtrain {

// Returns a table of at most 80 columns with one cell per distinct block of the tensor:
//
//   ┌──────────┬──────────┐
//   │ CPU 0,4  │ CPU 1,5  │
//   ├──────────┼──────────┤
//   │ CPU 2,6  │ CPU 3,7  │
//   └──────────┴──────────┘
//
// A tensor of rank 1 is one row. Of a higher rank the first two split dimensions are shown, and a
// line above says which. With `color` the cells are coloured (ANSI, 256 colours) instead of framed.
// Lines below name partial axes. Ends with a newline.
std::string draw_sharding(const Shape& shape, const Sharding& sharding, const DeviceMesh& mesh,
                          bool color);

}  // namespace meshtrain
