// What `devices` of a config asks for, and the GPUs that it names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "comm/processes.h"
#include "config/config.h"

namespace meshtrain {

struct DeviceRequest {
  bool is_auto = true;
  bool is_gpu = false;
  std::vector<int> gpus;         // their numbers; empty: all there are
  std::optional<int64_t> count;  // of virtual devices: in all, or on each GPU; as many as the mesh
                                 // needs where not given
  std::string hardware;          // of devices on paper ("64xH100"); empty: those of this machine
  Located<std::string> text;     // as written

  // "8 x cpu (virtual)", "gpu:0", "8 x gpu:0 (virtual)", "4 x gpu", "64 x H100 (on paper)".
  std::string describe(int64_t num_devices) const;
  // What a mesh over so many processes must have, where that is said: each has one GPU, one alone
  // is thought to have all of them.
  std::optional<int64_t> num_devices(int processes) const;
};

// auto, cpu, cpu:8, gpu, gpu:1, gpu:0x8, gpu:0-3, gpu:0,2, gpu:all, gpu:0-3x2, 64xH100. Adds E113
// for what names no devices. Opens nothing.
DeviceRequest parse_devices(const Located<std::string>& devices, Diagnostics& diagnostics);

// GPUs that programs here may use, without loading anything: from the driver's files in `folder`,
// and CUDA_VISIBLE_DEVICES. None without the driver.
int count_gpus(const std::string& folder, const char* visible);

// `auto` becomes GPUs where there is one for each device of the mesh (and each process, of which
// `local_processes` are on this host), else the processor.
struct Surroundings {
  int processes = 1, local_processes = 1;
  int gpus = 0;
  // Of this host. No GPUs where there is no library for them.
  static Surroundings here(int processes);
};
void settle_auto(DeviceRequest& request, int64_t num_devices, const Surroundings& around);

// How many processes a run must start, one for each GPU; 1: none but itself. Throws as
// open_device().
int processes_to_start(const DeviceRequest& request);

// The GPU of process `local_rank` on this host; null for the processor. Throws ConfigError E620
// (exit 4) that says why there is no such GPU here and what to do, and E621 (exit 4) for devices on
// paper.
std::shared_ptr<gpu::Device> open_device(const DeviceRequest& request,
                                         const gpu::DeviceOptions& options,
                                         const Processes& processes = {});

// $MESHTRAIN_CACHE/gpu, or that of $XDG_CACHE_HOME or ~/.cache; empty where none of them is set.
std::string gpu_cache_folder();

}  // namespace meshtrain
