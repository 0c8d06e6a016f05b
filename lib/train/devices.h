// What `devices` of a config asks for, and the GPU that it names.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/gpu/device.h"
#include "config/config.h"

namespace meshtrain {

struct DeviceRequest {
  bool is_auto = true;
  bool is_gpu = false;
  int gpu = 0;                   // its index
  std::optional<int64_t> count;  // of virtual devices; as many as the mesh needs where not given
  Located<std::string> text;     // as written

  // "8 x cpu (virtual)", "gpu:0", "8 x gpu:0 (virtual)".
  std::string describe(int64_t num_devices) const;
};

// auto, cpu, cpu:8, gpu, gpu:1, gpu:0x8. Adds E113 for what names no devices, and E620 for several
// GPUs. Opens nothing.
DeviceRequest parse_devices(const Located<std::string>& devices, Diagnostics& diagnostics);

// `auto` becomes the first GPU where there is one and the mesh has one device, else the processor.
// Looks whether the files of a driver and of the GPU library are there, and loads neither.
void settle_auto(DeviceRequest& request, int64_t num_devices);

// The GPU that is asked for; null for the processor. Throws ConfigError E620 (exit 4) that says why
// there is no such GPU here and what to do.
std::shared_ptr<gpu::Device> open_device(const DeviceRequest& request,
                                         const gpu::DeviceOptions& options);

// $MESHTRAIN_CACHE/gpu, or that of $XDG_CACHE_HOME or ~/.cache; empty where none of them is set.
std::string gpu_cache_folder();

}  // namespace meshtrain
