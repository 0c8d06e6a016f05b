// What a program takes on a GPU beside its arena.
#pragma once

#include "ir/program.h"

namespace meshtrain {

// Memory for intermediate results of its steps, and for what goes to other processes and comes from
// them. Needs no GPU; takes as long as preparing the program.
int64_t gpu_scratch_bytes(const Program& program);

}  // namespace meshtrain
