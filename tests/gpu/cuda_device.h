#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/load.h"
#include "engine/devices.h"

namespace meshtrain::test {

// The first GPU of $MESHTRAIN_GPU_LIBRARY, by default of this build's; null, with a message, where
// there is none: the case has nothing to show then.
inline std::unique_ptr<gpu::Device> open_cuda_device(gpu::DeviceOptions options = {}) {
  ::setenv("MESHTRAIN_GPU_LIBRARY", MESHTRAIN_CUDA_LIBRARY, 0);
  std::string reason;
  gpu::Runtime* runtime = gpu::load_runtime(reason);
  if (runtime == nullptr) {
    MESSAGE("skipped: " << reason);
    return nullptr;
  }
  if (options.cache_dir.empty())
    options.cache_dir = gpu_cache_folder();
  return runtime->open(0, options);
}

template <class T>
std::byte* upload(gpu::Device& device, const std::vector<T>& values) {
  const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
  std::byte* memory = device.allocate(bytes);
  device.upload(memory, values.data(), bytes);
  return memory;
}

template <class T>
std::vector<T> download(gpu::Device& device, const std::byte* memory, size_t count) {
  std::vector<T> values(count);
  device.download(values.data(), memory, static_cast<int64_t>(count * sizeof(T)));
  return values;
}

}  // namespace meshtrain::test
