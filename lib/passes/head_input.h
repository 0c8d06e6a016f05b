// What the head of a model reads: the hidden states of its tokens.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

// Returns the operand of the last product that `output` is made of which depends on the inputs of
// the graph: `layer_norm` of a GPT. kNone when `output` has it from no single product with a
// weight, as a sum of two layers does.
ValueId head_input(const Graph& graph, ValueId output);

}  // namespace meshtrain
