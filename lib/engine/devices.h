// The GPUs that `devices` of a config asks for.
#pragma once

#include <memory>
#include <string>

#include "backend/gpu/device.h"
#include "comm/process_group.h"
#include "config/devices.h"

namespace meshtrain {

// GPUs that programs here may use, without loading anything: from the driver's files in `folder`,
// and CUDA_VISIBLE_DEVICES. None without the driver.
int count_gpus(const std::string& folder, const char* visible);

// What a process finds around it.
struct LocalResources {
  int processes = 1, local_processes = 1;  // of the run; of those, on this host
  int gpus = 0;                            // that this process may use
  // Whether the process was given one GPU (CUDA_VISIBLE_DEVICES names one), as Slurm gives each
  // task its own.
  bool has_own_gpu = false;
  // GPUs that the driver knows but this program has no library for, and why.
  int gpus_without_library = 0;
  std::string no_library;
  // $MESHTRAIN_DEVICE_FOLDER stands for /dev.
  static LocalResources here(int processes);
};

// How many devices a mesh without a shape has: all that `request` names; of `auto` and `gpu:all`
// those that are here, and a GPU or a processor for each process where there are several.
int64_t all_devices(const DeviceRequest& request, const LocalResources& resources);

// `auto` becomes GPUs where there is one for each device of the mesh (and each process), else the
// processor; a warning W620 says so where there are GPUs, used or not for want of a library.
void resolve_auto_devices(DeviceRequest& request, int64_t num_devices,
                          const LocalResources& resources, Diagnostics& diagnostics);

// How many processes a run must start, one for each GPU; 1: none but itself. Throws as
// open_device().
int processes_to_start(const DeviceRequest& request);

// The GPU of process `local_rank` on this host; null for the processor. Throws ConfigError E620
// (exit 4) that says why there is no such GPU here and what to do, and E621 (exit 4) for devices on
// paper.
std::shared_ptr<gpu::Device> open_device(const DeviceRequest& request,
                                         const gpu::DeviceOptions& options,
                                         const Processes& processes = {});

// $MESHTRAIN_CACHE/gpu, or that of $XDG_CACHE_HOME or ~/.cache, made where it is missing; empty
// where none of them is set, and, with the warning W622, where others can write it.
std::string gpu_cache_folder(Diagnostics* warnings = nullptr);

}  // namespace meshtrain
