// The settings of NCCL: backend/gpu/load.cc sets the environment of a run from them, and the cost
// model of `plan` assumes them (engine/make_plan.cc).
//
// NCCL chooses algorithm and protocol of a call by its size and the topology. Both are the same in
// every run of a config on the same GPUs, and so are the bits. Sums in the switch are off: they
// differ from call to call (NVIDIA/nccl#1497), and before NCCL 2.29 processes may hang where only
// some of them get what that needs. PyTorch's deterministic mode excludes the same. With fixed
// reductions NCCL adds nothing up at all.
#pragma once

#include <cstdlib>
#include <string_view>

namespace meshtrain {

struct EnvironmentSetting {
  const char* name;
  const char* value;
};
// A value in the user's environment overrides this.
inline constexpr EnvironmentSetting kNcclSwitch = {"NCCL_NVLS_ENABLE", "0"};
// Ranks connect when a communicator is made, for all algorithms: with the first call of each
// otherwise, which may be in a capture.
inline constexpr EnvironmentSetting kNcclConnect = {"NCCL_RUNTIME_CONNECT", "0"};

// Whether a run that is started here lets NCCL add up in the switch.
inline bool nccl_sums_in_switch() {
  const char* set = std::getenv(kNcclSwitch.name);
  return std::string_view(set == nullptr ? kNcclSwitch.value : set) != "0";
}

}  // namespace meshtrain
