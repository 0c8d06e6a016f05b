#include "train/device_shares.h"

#include <cstdlib>

#include "base/host.h"
#include "base/text.h"
#include "engine/devices.h"
#include "exec/share_cores.h"
#include "exec/worker_pool.h"

namespace meshtrain {

std::vector<DeviceShare> device_shares(int slots, int64_t threads) {
  std::vector<DeviceShare> out;
  const std::vector<int> cpus = usable_cpus();
  const int gpus = LocalResources::here(1).gpus;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> names =
      visible != nullptr ? split(visible, ',') : std::vector<std::string>();
  for (int gpu = 0; visible == nullptr && gpu < gpus; ++gpu) {
    names.push_back(std::to_string(gpu));
  }
  for (int slot = 0; slot < slots; ++slot) {
    DeviceShare& share = out.emplace_back();
    share.cpus = slots > 1 ? own_share(cpus, slot, slots) : std::vector<int>();
    share.threads = threads > 0 ? threads : slots > 1 && share.cpus.empty() ? 1 : 0;
    const size_t each = names.size() / static_cast<size_t>(slots);
    if (slots > 1 && gpus > 0 && each > 0) {
      const auto first = names.begin() + static_cast<long>(each) * slot;
      share.gpus = join(std::vector<std::string>(first, first + static_cast<long>(each)), ",");
    }
  }
  return out;
}

}  // namespace meshtrain
