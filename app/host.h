// What this machine has: for `devices` and `doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/gpu/device.h"

namespace meshtrain {

struct ThisHost {
  std::string cpu = "unknown CPU";
  int cores = 1;       // that this process may use
  int64_t memory = 0;  // bytes
};
ThisHost this_host();

// Those that runs can use, and why there are none.
struct Gpus {
  std::vector<gpu::DeviceInfo> devices;
  std::vector<gpu::LibraryInfo> libraries;
  std::string reason;
};
Gpus find_gpus();

}  // namespace meshtrain
