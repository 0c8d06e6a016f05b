// The device that the GPU suites run on: that of $MESHTRAIN_GPU_LIBRARY, otherwise the emulator of
// this build.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "backend/gpu/load.h"
#include "engine/devices.h"
#include "support/instrumented.h"

namespace meshtrain::test {

// Null, with a message, where the library that was asked for finds no device: the case has nothing
// to show then. The emulator is always there.
inline gpu::Runtime* test_runtime() {
  ::setenv("MESHTRAIN_GPU_LIBRARY", MESHTRAIN_EMULATOR, 0);
  std::string reason;
  gpu::Runtime* runtime = gpu::load_runtime(reason);
  if (runtime == nullptr) {
    const bool is_emulator =
        std::string_view(std::getenv("MESHTRAIN_GPU_LIBRARY")) == MESHTRAIN_EMULATOR;
    REQUIRE_MESSAGE(!is_emulator, reason);
    MESSAGE("skipped: " << reason);
  }
  return runtime;
}

inline std::unique_ptr<gpu::Device> open_test_device() {
  gpu::Runtime* runtime = test_runtime();
  gpu::DeviceOptions options;
  options.use_tf32 = false;
  options.cache_dir = gpu_cache_folder();  // minutes of NVRTC
  return runtime == nullptr ? nullptr : runtime->open(0, options);
}

// Whether its GPU is the host: the emulator, or the fake CUDA. Both compute products by the same
// loops.
inline bool is_host_gpu() {
  return test_runtime()->info(0).name.find("NVIDIA") == std::string::npos;
}

// Runs the emulator in another order of calls, blocks and threads; real devices have their own.
inline void set_emulator_seed(uint64_t seed) {
  ::setenv("MESHTRAIN_EMULATOR_SEED", std::to_string(seed).c_str(), 1);
}

// Where every step takes long: the code is instrumented, or kernels are, as compute-sanitizer does
// ($MESHTRAIN_SLOW).
inline bool is_slow() {
  return kIsInstrumented || std::getenv("MESHTRAIN_SLOW") != nullptr;
}

}  // namespace meshtrain::test
