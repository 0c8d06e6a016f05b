#include "engine/devices.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "backend/gpu/load.h"
#include "base/parse_number.h"
#include "base/system_calls.h"
#include "base/text.h"
#include "comm/environment.h"

namespace meshtrain {
namespace {

ConfigError no_gpu(const DeviceRequest& request, std::string message, const std::string& note,
                   std::string_view help) {
  ConfigError problem("E620", request.text.loc, std::move(message));
  if (!note.empty()) {
    problem.note(note);
  }
  problem.help(std::string(help));
  return problem;
}

// Counts the devices in CUDA_VISIBLE_DEVICES.
int count_named(const char* visible) {
  int named = 0;
  for (const std::string& part : split(visible, ',')) {
    if (part.empty() || starts_with(part, "-")) {
      break;  // CUDA sees none of the rest either
    }
    ++named;
  }
  return named;
}

// Whether nobody else can write `folder`, which is made where it is missing.
bool is_private_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
  struct stat found = {};
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return true;  // nothing can be kept there, nor found
  }
  return ::stat(folder.c_str(), &found) != 0 ||
         ((found.st_uid == ::geteuid() || found.st_uid == 0) && (found.st_mode & 022) == 0);
}

}  // namespace

int count_gpus(const std::string& folder, const char* visible) {
  constexpr std::string_view kName = "nvidia";
  std::error_code ignored;
  int count = std::filesystem::exists(folder + "/dxg", ignored) ? 1 : 0;
  if (std::filesystem::exists(folder + "/nvidiactl", ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      const bool is_gpu =
          starts_with(name, kName) && parse_number<int64_t>(name.substr(kName.size()));
      count += is_gpu ? 1 : 0;
    }
  }
  return visible == nullptr ? count : std::min(count, count_named(visible));
}

LocalResources LocalResources::here(int processes) {
  const auto get = [](const char* name) { return std::getenv(name); };
  const char* const visible = get("CUDA_VISIBLE_DEVICES");
  const char* const folder = get("MESHTRAIN_DEVICE_FOLDER");
  LocalResources out;
  out.processes = processes;
  out.local_processes = processes == 1 ? 1 : read_environment(get).local_size;
  const int gpus = count_gpus(folder == nullptr ? "/dev" : folder, visible);
  (gpu::has_library(out.no_library) ? out.gpus : out.gpus_without_library) = gpus;
  out.has_own_gpu = out.gpus == 1 && visible != nullptr && count_named(visible) == 1;
  return out;
}

int64_t all_devices(const DeviceRequest& request, const LocalResources& resources) {
  const int64_t here = resources.processes > 1 ? resources.processes : std::max(resources.gpus, 1);
  return request.num_devices(resources.processes).value_or(here * request.count.value_or(1));
}

namespace {

std::string unused_gpus(int count) {
  return count == 1 ? "the GPU here is" : fmt::format("the {} GPUs here are", count);
}

// `auto` cannot take GPUs without the library for them.
void warn_of_no_library(const DeviceRequest& request, int64_t num_devices,
                        const LocalResources& resources, Diagnostics& diagnostics) {
  diagnostics
      .warning("W620", request.text.loc,
               fmt::format("{} not used: {}", unused_gpus(resources.gpus_without_library),
                           resources.no_library))
      .help(fmt::format("`devices: {}` for the processor, without this warning",
                        request.as_many(num_devices)));
}

// Why `auto` leaves the GPUs that are here alone.
void warn_of_unused(const DeviceRequest& request, int64_t num_devices,
                    const LocalResources& resources, Diagnostics& diagnostics) {
  const bool is_alone = resources.processes == 1;
  const int64_t each = num_devices / resources.processes;  // devices of a process
  const bool is_crowded = !is_alone && resources.local_processes > resources.gpus;
  Diagnostic& d = diagnostics.warning(
      "W620", request.text.loc,
      fmt::format("{} not used: {}", unused_gpus(resources.gpus),
                  is_alone ? fmt::format("the mesh has {} devices", num_devices)
                  : is_crowded
                      ? fmt::format("{} processes are on this host", resources.local_processes)
                      : fmt::format("each process has {} devices", each)));
  if (is_crowded) {
    d.help("start as many processes on a host as it has GPUs")
        .help("`devices: gpu:all` where each process sees a GPU of its own");
  } else if (!is_alone) {
    d.help(fmt::format("`devices: gpu:allx{}` for virtual devices on each GPU", each));
  } else if (num_devices % resources.gpus == 0) {
    d.help(fmt::format("`devices: gpu:{}x{}` for virtual devices on {}",
                       resources.gpus == 1 ? "0" : fmt::format("0-{}", resources.gpus - 1),
                       num_devices / resources.gpus, resources.gpus == 1 ? "it" : "them"));
  }
  d.help(fmt::format("`devices: {}` for the processor, without this warning",
                     request.as_many(num_devices)));
}

}  // namespace

void resolve_auto_devices(DeviceRequest& request, int64_t num_devices,
                          const LocalResources& resources, Diagnostics& diagnostics) {
  if (!request.is_auto) {
    return;
  }
  const bool is_alone = resources.processes == 1;
  const bool is_one_each = is_alone || resources.processes == num_devices;
  const int64_t needed = is_alone ? num_devices : resources.local_processes;
  const bool is_given = !is_alone && resources.has_own_gpu;
  request.is_gpu = is_one_each && (needed <= resources.gpus || is_given);
  if (request.is_gpu && is_alone) {  // of several, each takes its own
    request.gpus.resize(static_cast<size_t>(needed));
    std::iota(request.gpus.begin(), request.gpus.end(), 0);
  } else if (!request.is_gpu && resources.gpus > 0) {
    warn_of_unused(request, num_devices, resources, diagnostics);
  } else if (!request.is_gpu && resources.gpus_without_library > 0) {
    warn_of_no_library(request, num_devices, resources, diagnostics);
  }
}

namespace {

// The library, which has found `count` GPUs, at least one.
gpu::Runtime& runtime_for(const DeviceRequest& request, int& count) {
  const std::string asked = request.is_auto ? "gpu:0" : request.text.value;
  std::string reason;
  gpu::Runtime* runtime = gpu::load_runtime(reason);
  count = runtime == nullptr ? 0 : runtime->device_count(reason);
  if (count == 0) {
    throw no_gpu(request, fmt::format("`{}` cannot be used here: {}", asked, reason), "",
                 "write `devices: cpu:8` for virtual devices on the processor");
  }
  return *runtime;
}

void check_number(const DeviceRequest& request, int number, int count) {
  if (number < count) {
    return;
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  throw no_gpu(request,
               fmt::format("there is no GPU number {}; there {} {}", number,
                           count == 1 ? "is" : "are", count),
               visible == nullptr ? "" : fmt::format("CUDA_VISIBLE_DEVICES is `{}`", visible),
               fmt::format("the first one is `gpu:0`{}",
                           count > 1 ? fmt::format(", the last `gpu:{}`", count - 1) : ""));
}

void check_not_on_paper(const DeviceRequest& request) {
  if (!request.hardware.empty()) {
    throw ConfigError(
        "E621", request.text.loc,
        fmt::format("`{}` are devices on paper: only `plan` works with them", request.text.value))
        .help("write `devices: auto` for those of this machine");
  }
}

}  // namespace

int processes_to_start(const DeviceRequest& request) {
  if (!request.is_gpu || request.gpus.size() == 1) {
    return 1;
  }
  int count = 0;
  {
    // This process will wait for others and for signals: the driver's threads must not take them.
    const SignalsBlocked blocked;
    runtime_for(request, count);
  }
  for (const int number : request.gpus) {
    check_number(request, number, count);
  }
  return request.gpus.empty() ? count : static_cast<int>(request.gpus.size());
}

std::shared_ptr<gpu::Device> open_device(const DeviceRequest& request,
                                         const gpu::DeviceOptions& options,
                                         const Processes& processes) {
  check_not_on_paper(request);
  const bool is_alone = processes.size() == 1;
  // `auto` of one process means several GPUs only where it starts a process for each.
  if (!request.is_gpu || (is_alone && request.is_auto && request.gpus.size() > 1)) {
    return nullptr;
  }
  int count = 0;
  gpu::Runtime& runtime = runtime_for(request, count);
  const size_t listed = request.gpus.empty() ? static_cast<size_t>(count) : request.gpus.size();
  if (is_alone && listed > 1) {
    throw no_gpu(
        request,
        fmt::format("`{}` asks for {} GPUs; this works with one", request.text.value, listed),
        "train, resume, evaluate and predict start a process for each GPU",
        "write `devices: gpu:0`");
  }
  const size_t place = is_alone ? 0 : static_cast<size_t>(processes.group->local_rank()) % listed;
  const int number = request.gpus.empty() ? static_cast<int>(place) : request.gpus[place];
  check_number(request, number, count);
  return runtime.open(number, options);
}

std::string gpu_cache_folder(Diagnostics* warnings) {
  for (const auto& [variable, inside] :
       {std::pair{"MESHTRAIN_CACHE", "gpu"}, std::pair{"XDG_CACHE_HOME", "meshtrain/gpu"},
        std::pair{"HOME", ".cache/meshtrain/gpu"}}) {
    const char* base = std::getenv(variable);
    if (base == nullptr || *base == '\0') {
      continue;
    }
    const std::string folder = fmt::format("{}/{}", base, inside);
    if (is_private_folder(folder)) {
      return folder;
    }
    if (warnings != nullptr) {
      warnings
          ->warning("W622", {},
                    fmt::format("compiled kernels are not kept: others can write `{}`", folder))
          .help(fmt::format("chmod go-w {}, or another MESHTRAIN_CACHE", folder));
    }
    return "";
  }
  return "";
}

}  // namespace meshtrain
