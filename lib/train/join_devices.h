// GPUs of several processes that are to compute together.
#pragma once

#include <memory>
#include <optional>

#include "backend/gpu/device.h"
#include "comm/control_channel.h"
#include "comm/processes.h"

namespace meshtrain {

// Ends what a device waits for when the processes must leave. Goes before the device does.
using AbortHook = std::optional<ControlChannel::Hook>;

// Collective: every process gives its GPU, none where it computes on the processor, which all must
// do alike. Tries the communication of all with all. Throws ConfigError E615 (exit 4) where two
// have the same GPU, RuntimeFailure (exit 8) where GPUs do not come together or something else
// arrives than was sent.
AbortHook join_devices(const std::shared_ptr<gpu::Device>& device, const Processes& processes);

}  // namespace meshtrain
