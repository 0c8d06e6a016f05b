// Divides the cores of a host among the processes of a run on it.
#pragma once

#include <vector>

#include "comm/process_group.h"

namespace meshtrain {

// Returns the CPUs of process `index` of `count`; empty when there are fewer CPUs than processes.
// The system then schedules the processes.
std::vector<int> own_share(const std::vector<int>& cpus, int index, int count);

// Collective. Where several processes of the group may use the same cores, binds each process and
// its later threads to a share of them. Replaces the default binding of mpirun, which the user did
// not choose. Returns the number of computing threads; 0: one per core of the process.
int share_cores(ProcessGroup& group);

}  // namespace meshtrain
