// Before the first step: do processes get from each other what was sent?
#pragma once

#include "comm/process_group.h"

namespace meshtrain {

// Collective: transfers whose results are known, over all processes of the group: texts of several
// lengths, messages both ways around the ring (longer than what MPI sends without asking first, and
// short ones), sums, and the largest of numbers. `moves_tensors`: not only texts. Throws
// ConfigError E605 (exit 8) on every rank, naming those that got something else and what.
void check_communicator(ProcessGroup& group, bool moves_tensors);

}  // namespace meshtrain
