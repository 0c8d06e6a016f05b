// Lowering: from a partitioned Graph to the Program that every device of a process runs.
#pragma once

#include "ir/program.h"

namespace meshtrain {

// Computes local shapes, one buffer per value, elementwise groups as fused steps, and the memory
// plan. The new value of a variable is written in place when all readers of the old one precede it.
Program lower_program(const Graph& graph, const MeshPart& part);

}  // namespace meshtrain
