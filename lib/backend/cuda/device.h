// A GPU, opened.
#pragma once

#include <memory>
#include <string>

#include "backend/gpu/device.h"

namespace meshtrain::cuda {

// What is known of a GPU without opening it; free_bytes is 0.
gpu::DeviceInfo device_info(int index);
// Throws RuntimeFailure where it cannot be used.
std::unique_ptr<gpu::Device> open_device(int index, const gpu::DeviceOptions& options);

}  // namespace meshtrain::cuda
