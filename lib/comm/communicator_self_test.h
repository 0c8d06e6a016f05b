// Before the first step: do processes get from each other what was sent?
#pragma once

#include "comm/process_group.h"

namespace meshtrain {

// Collective: transfers with known results over all processes of the group. They are texts of
// several lengths, messages both ways around the ring (above and below the eager limit of MPI),
// sums and maxima. `moves_tensors`: not only texts. Throws ConfigError E605 (exit 8) on every rank,
// naming those that got something else and what.
void check_communicator(ProcessGroup& group, bool moves_tensors);

}  // namespace meshtrain
