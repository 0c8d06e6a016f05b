// Checks before several processes compute together: their GPUs reach each other, and all run one
// program.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "backend/gpu/device.h"
#include "comm/heartbeat_monitor.h"
#include "comm/process_group.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshtrain {

// Aborts a device's waiting communication when the processes must exit. Destroy it before the
// device.
using AbortHook = std::optional<HeartbeatMonitor::Hook>;

// Collective: connects the GPUs of all processes and tests the communication of all with all.
// `device` is null on all processes or on none. Throws ConfigError E611 (exit 2) when GPUs or their
// libraries differ, because their sums may round differently. Throws E615 (exit 4) when two
// processes have the same GPU, and RuntimeFailure (exit 8) when GPUs do not connect or received
// data are wrong.
AbortHook join_devices(const std::shared_ptr<gpu::Device>& device, const Processes& processes);

// Collective: connects the GPUs in the groups of these programs' library collectives and tests each
// group. Call before checking that programs fit, since NCCL allocates memory on connection. Skips
// and extends the groups in `joined`. Throws RuntimeFailure (exit 8) as above.
using DeviceGroups = std::set<std::vector<int>>;
void join_groups(gpu::Device* device, const Processes& processes,
                 const std::vector<Program>& programs, DeviceGroups& joined);

// Collective: throws ConfigError E611 (exit 2) when a rank partitioned the program differently than
// rank 0. Call before the first run of a program. `what`: "a train step of 64 samples".
void check_same_program(const Processes& processes, const Graph& partitioned,
                        const DeviceMesh& mesh, const std::string& what);

}  // namespace meshtrain
