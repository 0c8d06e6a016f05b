#include "exec/join_devices.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "backend/gpu/load.h"
#include "backend/gpu/self_test.h"
#include "base/diagnostic.h"
#include "base/host.h"
#include "base/text.h"
#include "comm/handshake.h"
#include "exec/library_collective.h"

namespace meshtrain {
namespace {

constexpr double kJoinSeconds = 150;  // NCCL's own limit is 120

// Enters a collective in the heartbeat monitor while it lives, so that a hang names it.
class Together {
 public:
  Together(HeartbeatMonitor* monitor, const char* what) : monitor_(monitor) {
    if (monitor_ != nullptr) {
      monitor_->enter(0, what);
    }
  }
  ~Together() {
    if (monitor_ != nullptr) {
      monitor_->leave();
    }
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

 private:
  HeartbeatMonitor* monitor_;
};

// "0000:1b:00.0 of h1", and what distinguishes hosts of one name. NCCL_HOSTID stands for the host,
// as it does for NCCL.
std::string place_of(gpu::Device& device) {
  const char* named = std::getenv("NCCL_HOSTID");
  return fmt::format("{} of {}\n{}", device.info().place, named == nullptr ? host_name() : named,
                     named == nullptr ? host_id() : "");
}

void check_apart(const std::vector<std::string>& places) {
  std::map<std::string, int> first;
  Diagnostics diagnostics;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto [other, is_new] = first.emplace(places[rank], static_cast<int>(rank));
    if (!is_new) {
      diagnostics
          .error("E615", {},
                 fmt::format("ranks {} and {} share GPU {}", other->second, rank,
                             places[rank].substr(0, places[rank].find('\n'))))
          .help(
              "start as many processes on a host as it has GPUs, each with a LOCAL_RANK of its "
              "own, and name them all: `devices: gpu:all`")
          .help("several virtual devices on one GPU need one process: `devices: gpu:0x4`")
          .help(fmt::format("to compute on processors instead: `devices: cpu:{}`", places.size()))
          .help(
              "for tests of several processes on one GPU, without its speed: another "
              "NCCL_HOSTID for each, NCCL_SOCKET_IFNAME==lo and NCCL_NET=Socket");
      diagnostics.throw_if_errors();
    }
  }
}

// "NVRTC 13.0, cuBLASLt 13.1, cuDNN 9.19, NCCL 2.28"
std::string versions_of(const std::vector<gpu::LibraryInfo>& libraries) {
  std::string text;
  for (const gpu::LibraryInfo& library : libraries) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", library.name,
                        library.version.empty() ? "none" : library.version);
  }
  return text;
}

// Kernels are compiled for the GPU, and libraries choose algorithms by it.
std::vector<Fact> kind_of(const gpu::DeviceInfo& info,
                          const std::vector<gpu::LibraryInfo>& libraries) {
  const auto other_gpu = [](const std::string& first, const std::string& other) {
    return std::vector<std::string>{
        fmt::format("`{}`, rank 0 has `{}`", other, first),
        "`auto` takes all GPUs; name those of one kind: `devices: gpu:0`"};
  };
  return {{"GPU", info.name, other_gpu},
          {"compute capability", fmt::format("{}.{}", info.compute / 10, info.compute % 10)},
          {"libraries", versions_of(libraries)}};
}

// The first line that two programs do not have in common.
std::vector<std::string> first_difference(const std::string& first, const std::string& other) {
  const std::vector<std::string> a = split(first, '\n'), b = split(other, '\n');
  size_t line = 0;
  while (line < std::min(a.size(), b.size()) && a[line] == b[line]) {
    ++line;
  }
  const auto text = [line](const std::vector<std::string>& lines) {
    return line < lines.size() ? fmt::format("`{}`", trim(lines[line])) : "at its end";
  };
  return {fmt::format("line {} is {}, on rank 0 {}", line + 1, text(b), text(a))};
}

// Returns the runtime of the open device.
gpu::Runtime& loaded_runtime() {
  std::string reason;
  gpu::Runtime* const runtime = gpu::load_runtime(reason);
  MESHTRAIN_CHECK(runtime != nullptr, "{}", reason);
  return *runtime;
}

}  // namespace

AbortHook join_devices(const std::shared_ptr<gpu::Device>& device, const Processes& processes) {
  if (processes.size() == 1 || device == nullptr) {
    return std::nullopt;
  }
  HeartbeatMonitor* const monitor = processes.monitor.get();
  std::optional<HeartbeatMonitor::Announcement> announced;
  AbortHook hook;
  if (monitor != nullptr) {
    announced.emplace(monitor->announce("joining the GPUs", kJoinSeconds));
    hook.emplace(monitor->on_abort([device] { device->abort(); }));
  }
  const Together together(monitor, "joining the GPUs");
  ProcessGroup& group = *processes.group;
  check_apart(group.all_gather(place_of(*device)));
  gpu::Runtime& runtime = loaded_runtime();
  check_consistent(group, kind_of(device->info(), runtime.libraries()),
                   "computes with something else than");
  const std::string id = group.all_gather(processes.is_first() ? runtime.make_id() : "")[0];
  device->join(id, group.rank(), group.size());
  gpu::check_exchange(*device, group.rank(), group.size());
  std::vector<int> all(static_cast<size_t>(group.size()));
  std::iota(all.begin(), all.end(), 0);
  gpu::check_collectives(*device, group.rank(), all);
  return hook;
}

void join_groups(gpu::Device* device, const Processes& processes,
                 const std::vector<Program>& programs, DeviceGroups& joined) {
  if (processes.size() == 1 || device == nullptr) {
    return;
  }
  for (const Program& program : programs) {
    for (const std::vector<int>& ranks : library_groups(program)) {
      if (!joined.insert(ranks).second) {
        continue;
      }
      HeartbeatMonitor* const monitor = processes.monitor.get();
      std::optional<HeartbeatMonitor::Announcement> announced;
      if (monitor != nullptr) {
        announced.emplace(monitor->announce("joining the GPUs", kJoinSeconds));
      }
      const Together together(monitor, "joining the GPUs");
      for (const int64_t elements : {gpu::kFewElements, gpu::kManyElements}) {
        gpu::check_collectives(*device, processes.rank(), ranks, elements);
      }
    }
  }
}

void check_same_program(const Processes& processes, const Graph& partitioned,
                        const DeviceMesh& mesh, const std::string& what) {
  if (processes.size() == 1) {
    return;
  }
  const Together together(processes.monitor.get(), "comparing the programs");
  check_consistent(*processes.group, {{what, print(partitioned, mesh), first_difference}},
                   "would run another program than");
}

}  // namespace meshtrain
