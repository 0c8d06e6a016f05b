// meshtrain devices: what a mesh can be built of here.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/text.h"
#include "cli.h"
#include "train/events.h"

namespace meshtrain {
namespace {

struct Host {
  std::string cpu = "unknown CPU";
  int cores = 1;  // that this process may use
  int64_t memory = 0;
};

Host this_host() {
  Host host;
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

}  // namespace

int run_devices(const Arguments& arguments) {
  const Host host = this_host();
  if (arguments.format == "json") {
    out_stream().write(
        fmt::format(R"({{"cpu":{{"name":{},"cores":{},"memory":{}}},"gpus":[],"auto":"cpu"}})"
                    "\n",
                    json_string(host.cpu), host.cores, host.memory));
    return 0;
  }
  out_stream().write(
      fmt::format("cpu   {}\n"
                  "      {} core{}, {} of memory; any number of virtual devices (cpu:8)\n"
                  "gpu   none: this build has no GPU support\n"
                  "auto  as many virtual CPU devices as the mesh needs\n",
                  host.cpu, host.cores, host.cores == 1 ? "" : "s", format_bytes(host.memory)));
  return 0;
}

}  // namespace meshtrain
