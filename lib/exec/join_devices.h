// What several processes see to before they compute together: GPUs that reach each other, and one
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

// Ends what a device waits for when the processes must leave. Goes before the device does.
using AbortHook = std::optional<HeartbeatMonitor::Hook>;

// Collective: every process gives its GPU, none where it computes on the processor, which all must
// do alike. Tries the communication of all with all. Throws ConfigError E611 (exit 2) where the
// GPUs or the libraries that drive them are of several kinds, whose sums may round differently;
// E615 (exit 4) where two have the same GPU; RuntimeFailure (exit 8) where GPUs do not come
// together or something else arrives than was sent.
AbortHook join_devices(const std::shared_ptr<gpu::Device>& device, const Processes& processes);

// Collective, before it is asked whether programs fit: joins the GPUs in the groups in which these
// programs have a library move something, and tries each, since NCCL takes memory for it then.
// `joined`: those that are there, to which it adds. Throws RuntimeFailure (exit 8) as above.
using DeviceGroups = std::set<std::vector<int>>;
void join_groups(gpu::Device* device, const Processes& processes,
                 const std::vector<Program>& programs, DeviceGroups& joined);

// Collective, before the first run of a program: throws ConfigError E611 (exit 2) where a rank has
// partitioned it otherwise than rank 0. `what`: "a train step of 64 samples".
void check_same_program(const Processes& processes, const Graph& partitioned,
                        const DeviceMesh& mesh, const std::string& what);

}  // namespace meshtrain
