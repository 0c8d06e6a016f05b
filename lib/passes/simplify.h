// Simplifies the global graph: merges equal computations and removes those without effect.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Removes common subexpressions, x*1, x/1, x+0, x-0, casts to the same type, broadcasts that an
// elementwise reader implies, and everything that no output or update depends on.
Graph simplify(Graph graph);

}  // namespace meshtrain
