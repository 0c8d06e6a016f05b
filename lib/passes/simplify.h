// Clean-up of the global graph: equal computations once, nothing that changes no number.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Common subexpressions, x*1, x/1, x+0, x-0, casts to the same type, broadcasts that an elementwise
// reader does by itself, and everything no output or update depends on.
Graph simplify(Graph graph);

}  // namespace meshtrain
