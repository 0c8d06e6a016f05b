// The cores of a host among the processes of a run on it.
#pragma once

#include <vector>

#include "comm/process_group.h"

namespace meshtrain {

// Those of `cpus` that number `index` of `count` processes takes; empty where there are fewer than
// processes, which then share them as the system decides.
std::vector<int> own_share(const std::vector<int>& cpus, int index, int count);

// Collective. Where several processes of the group may use the same cores, each keeps to its share
// of them from now on (threads that are started later as well). The cores that mpirun binds each
// process to unless it is told otherwise are no choice of the user's and are given up for that.
// Returns how many threads are to compute; 0: one per core that is left to the process.
int share_cores(ProcessGroup& group);

}  // namespace meshtrain
