// The GPUs that `devices` of a config requests.
#pragma once

#include <memory>
#include <string>

#include "backend/gpu/device.h"
#include "comm/process_group.h"
#include "config/devices.h"

namespace meshtrain {

// Counts the GPUs of this host without loading a library, from the driver's files in `folder` and
// CUDA_VISIBLE_DEVICES. Returns 0 without a driver.
int count_gpus(const std::string& folder, const char* visible);

// The devices and processes of this host, as one process detects them.
struct LocalResources {
  int processes = 1, local_processes = 1;  // of the run; of those, on this host
  int gpus = 0;                            // that this process may use
  // True when CUDA_VISIBLE_DEVICES names one GPU, as Slurm assigns one to each task.
  bool has_own_gpu = false;
  // GPUs of the driver that this program cannot use for want of a library, and the reason.
  int gpus_without_library = 0;
  std::string no_library;
  // $MESHTRAIN_DEVICE_FOLDER stands for /dev.
  static LocalResources here(int processes);
};

// Returns the size of a mesh without a shape: the devices that `request` names. For `auto` and
// `gpu:all`: the GPUs of this host or, with several processes, one device for each.
int64_t all_devices(const DeviceRequest& request, const LocalResources& resources);

// `auto` becomes GPUs where there is one for each device of the mesh (and each process), else the
// CPU. The warning W620 reports GPUs that are used, or that are not used for want of a library.
void resolve_auto_devices(DeviceRequest& request, int64_t num_devices,
                          const LocalResources& resources, Diagnostics& diagnostics);

// Returns how many processes a run needs, one for each GPU; 1: only this one. Throws as
// open_device().
int processes_to_start(const DeviceRequest& request);

// Opens the GPU of this process; null for the CPU. Throws ConfigError E620 (exit 4) with the reason
// and the remedy when there is no such GPU, and E621 (exit 4) for virtual planning devices.
std::shared_ptr<gpu::Device> open_device(const DeviceRequest& request,
                                         const gpu::DeviceOptions& options,
                                         const Processes& processes = {});

// $MESHTRAIN_CACHE/gpu, or that of $XDG_CACHE_HOME or ~/.cache, made where it is missing; empty
// where none of them is set, and, with the warning W622, where others can write it.
std::string gpu_cache_folder(Diagnostics* warnings = nullptr);

}  // namespace meshtrain
