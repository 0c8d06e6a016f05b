#include "host.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "backend/gpu/load.h"
#include "base/text.h"

namespace meshtrain {

ThisHost this_host() {
  ThisHost host;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (starts_with(line, "model name") && colon != std::string::npos) {
      host.cpu = trim(std::string_view(line).substr(colon + 1));
      break;
    }
  }
  cpu_set_t usable;
  host.cores = sched_getaffinity(0, sizeof(usable), &usable) == 0
                   ? CPU_COUNT(&usable)
                   : static_cast<int>(std::thread::hardware_concurrency());
  host.memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return host;
}

Gpus find_gpus() {
  Gpus out;
  gpu::Runtime* runtime = gpu::load_runtime(out.reason);
  const int count = runtime == nullptr ? 0 : runtime->device_count(out.reason);
  for (int i = 0; i < count; ++i) {
    out.devices.push_back(runtime->info(i));
  }
  if (count > 0) {
    out.libraries = runtime->libraries();
  }
  return out;
}

}  // namespace meshtrain
