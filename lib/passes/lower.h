// Lowering: from a partitioned Graph to the Program that every device of a process runs.
#pragma once

#include "ir/program.h"

namespace meshtrain {

// Local shapes, one buffer per value, elementwise groups as fused steps, new values of variables
// written in place where every reader of the old one comes first, and the memory plan.
Program lower_program(const Graph& graph, const MeshPart& part);

}  // namespace meshtrain
