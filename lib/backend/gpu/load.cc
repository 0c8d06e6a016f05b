#include "backend/gpu/load.h"

#include <cstdlib>

#include "base/error.h"
#include "base/library_part.h"
#include "base/nccl_settings.h"

#ifndef MESHTRAIN_CUDA_MISSING  // why the build can make no CUDA library; "" where it can
#define MESHTRAIN_CUDA_MISSING ""
#define MESHTRAIN_CUDA_CURE ""
#endif

namespace meshtrain::gpu {
namespace {

LibraryPart cuda_part() {
  return {.file = "libmeshtrain_cuda.so",
          .variable = "MESHTRAIN_GPU_LIBRARY",
          .kind = "GPU",
          .symbol = kEntryPoint,
          .abi = kAbi,
          .target = "meshtrain_cuda",
          .missing = MESHTRAIN_CUDA_MISSING,
          .cure = MESHTRAIN_CUDA_CURE};
}

}  // namespace

void set_up_environment() {
  for (const EnvironmentSetting& setting : {kNcclSwitch, kNcclConnect})
    ::setenv(setting.name, setting.value, 0);
}

bool has_library(std::string& reason) {
  return !find_part(cuda_part(), reason).empty();
}

Runtime* load_runtime(std::string& reason) {
  Runtime* const runtime = load_part<Runtime>(cuda_part(), reason);
  return runtime != nullptr && runtime->device_count(reason) > 0 ? runtime : nullptr;
}

}  // namespace meshtrain::gpu
