// Hardware from a YAML file: a map of names, each with the values that differ from the table's
// entry of that name, or from the entry that `like` names.
//
//   H100: {network: {rate: 23e9}}
//   X9: {like: H200, memory: 192 GB, matmul: {bfloat16: 1.2e15}}
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "plan/hardware.h"

namespace meshtrain {

struct DeviceRequest;

// The table with what the file at `path` changes and adds; the table itself when it is empty.
// Throws ConfigError with every problem of the file and its place.
std::vector<Hardware> load_hardware(const Located<std::string>& path);

// The devices that `devices` names in `table`, for `64xH100`; those of this machine for `cpu:8` and
// `auto` without a GPU. Null for GPUs of this machine: what they are is known when they are opened.
// Throws ConfigError E113 that lists the names when there is none of this name.
const Hardware* requested_hardware(const DeviceRequest& request,
                                   const std::vector<Hardware>& table);

}  // namespace meshtrain
