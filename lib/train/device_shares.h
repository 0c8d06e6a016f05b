// The devices of runs that share a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshtrain {

struct DeviceShare {
  std::vector<int> cpus;
  int64_t threads = 0;  // 0: one for each core
  std::string gpus;
};

// A share of the cores and of the GPUs for each of `slots` runs at a time. `threads`: of each run,
// 0 for its share of the cores.
std::vector<DeviceShare> device_shares(int slots, int64_t threads);

}  // namespace meshtrain
