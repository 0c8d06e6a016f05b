// meshtrain devices: what a mesh can be built of here.
#include <fmt/format.h>

#include <string>

#include "base/text.h"
#include "host.h"
#include "output.h"
#include "record/events.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct DevicesOptions {
  std::string format = "text";
};

std::string as_json(const ThisHost& host, const Gpus& gpus) {
  std::string list;
  for (const gpu::DeviceInfo& device : gpus.devices) {
    list += fmt::format(
        R"({}{{"name":{},"compute_capability":{},"memory":{},"free":{},"driver":{}}})",
        list.empty() ? "" : ",", json_string(device.name), static_cast<double>(device.compute) / 10,
        device.total_bytes, device.free_bytes, json_string(device.driver));
  }
  std::string libraries;
  for (const gpu::LibraryInfo& library : gpus.libraries) {
    libraries += fmt::format(R"({}{{"name":{},"version":{},"file":{},"problem":{}}})",
                             libraries.empty() ? "" : ",", json_string(library.name),
                             json_string(library.version), json_string(library.file),
                             json_string(library.problem));
  }
  return fmt::format(
      R"({{"cpu":{{"name":{},"cores":{},"memory":{}}},"gpus":[{}],"gpu_libraries":[{}],"no_gpu":{},"auto":{}}})"
      "\n",
      json_string(host.cpu), host.cores, host.memory, list, libraries,
      json_string(gpus.devices.empty() ? gpus.reason : ""),
      gpus.devices.empty()       ? R"("cpu")"
      : gpus.devices.size() == 1 ? R"("gpu:0")"
                                 : R"("gpu:all")");
}

std::string as_text(const ThisHost& host, const Gpus& gpus) {
  std::string out = fmt::format(
      "cpu   {}\n"
      "      {} core{}, {} of memory; any number of virtual devices (cpu:8)\n",
      host.cpu, host.cores, host.cores == 1 ? "" : "s", format_bytes(host.memory));
  for (size_t i = 0; i < gpus.devices.size(); ++i) {
    const gpu::DeviceInfo& device = gpus.devices[i];
    out += fmt::format(
        "gpu:{} {}, compute capability {}.{}\n"
        "      {} of memory, {} free; any number of virtual devices (gpu:{}x8)\n",
        i, device.name, device.compute / 10, device.compute % 10, format_bytes(device.total_bytes),
        format_bytes(device.free_bytes), i);
  }
  if (gpus.devices.empty()) {
    out += fmt::format("gpu   none: {}\n", gpus.reason);
    return out + "auto  as many virtual CPU devices as the mesh needs\n";
  }
  out += fmt::format("      driver {}\n", gpus.devices[0].driver);
  for (const gpu::LibraryInfo& library : gpus.libraries) {
    out +=
        library.problem.empty()
            ? fmt::format("      {:<14} {}\n", library.name + " " + library.version, library.file)
            : fmt::format("      {:<14} {}\n", library.name, library.problem);
  }
  return out + fmt::format(
                   "auto  a GPU for each device of the mesh, {} where it has no shape; virtual CPU "
                   "devices where it has more\n",
                   gpus.devices.size() == 1 ? "one" : fmt::format("all {}", gpus.devices.size()));
}

int run_devices(const DevicesOptions& options, Invocation&) {
  const ThisHost host = this_host();
  const Gpus gpus = find_gpus();
  out_stream().write(options.format == "json" ? as_json(host, gpus) : as_text(host, gpus));
  return 0;
}

}  // namespace

void add_devices(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<DevicesOptions>("devices", "Devices here, and what `auto` would choose", run_devices);
  add_format_flag(app, options.format);
}

}  // namespace meshtrain
