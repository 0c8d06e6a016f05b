// What `devices` of a config asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace meshtrain {

constexpr int64_t kMostDevices = 65536;  // of a mesh

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
  // As `devices` has it, the same kind but so many: "cpu:8", "gpu:0-7", "gpu:0x8", "64xH100".
  std::string as_many(int64_t num_devices) const;
  // What a mesh over so many processes must have, where that is said: each has one GPU, one alone
  // is thought to have all of them.
  std::optional<int64_t> num_devices(int processes) const;
};

// auto, cpu, cpu:8, gpu, gpu:1, gpu:0x8, gpu:0-3, gpu:0,2, gpu:all, gpu:0-3x2, 64xH100. Adds E113
// for anything else. Whether there are such devices, or such hardware, is asked later.
DeviceRequest parse_devices(const Located<std::string>& devices, Diagnostics& diagnostics);

}  // namespace meshtrain
