// The CUDA library on the fake driver and the fake libraries.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "backend/gpu/load.h"
#include "base/text.h"
#include "support/fake_cuda/control.h"

namespace meshtrain::test {

// Before anything of CUDA is opened, in every case.
inline gpu::Runtime* fake_runtime() {
  ::setenv("MESHTRAIN_GPU_LIBRARY", MESHTRAIN_CUDA_LIBRARY, 0);  // else one with a seeded fault
  ::setenv("MESHTRAIN_CUDA_PATH", MESHTRAIN_FAKE_CUDA, 1);
  ::setenv("MESHTRAIN_EMULATOR_GPUS", "4", 1);
  std::string reason;
  gpu::Runtime* const runtime = gpu::load_runtime(reason);
  REQUIRE_MESSAGE(runtime != nullptr, reason);
  return runtime;
}

inline std::unique_ptr<gpu::Device> open_fake_gpu(const gpu::DeviceOptions& options = {}) {
  return fake_runtime()->open(0, options);
}

// Memory of a device for as long as it lives.
struct Memory {
  Memory(gpu::Device& device, int64_t bytes) : device(device), data(device.allocate(bytes)) {}
  ~Memory() { device.free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  gpu::Device& device;
  std::byte* data;
};

// The order in which streams and graphs run: 0, as late as they may; else one for each number.
inline void set_order(uint64_t seed) {
  ::setenv("MESHTRAIN_EMULATOR_SEED", std::to_string(seed).c_str(), 1);
}

// Nothing was used wrongly and nothing is left but what was there before.
inline void check_clean(const std::string& before = "") {
  CHECK(join(fake_cuda::take_problems(), "; ") == "");
  CHECK(fake_cuda::live_objects() == before);
}

}  // namespace meshtrain::test
