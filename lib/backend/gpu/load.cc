#include "backend/gpu/load.h"

#include <cstdlib>

#include "base/error.h"
#include "base/library_part.h"
#include "base/nccl_settings.h"

#ifndef MESHTRAIN_CUDA_MISSING  // why the build made no CUDA library; "" where it made one
#define MESHTRAIN_CUDA_MISSING ""
#endif

namespace meshtrain::gpu {
namespace {

LibraryPart cuda_part() {
  const std::string missing = MESHTRAIN_CUDA_MISSING;
  return {
      .file = "libmeshtrain_cuda.so",
      .variable = "MESHTRAIN_GPU_LIBRARY",
      .kind = "GPU",
      .symbol = kEntryPoint,
      .abi = kAbi,
      .missing = missing.empty()
                     ? ""
                     : fmt::format("this meshtrain was built without CUDA ({}); build it where the "
                                   "CUDA toolkit and cuDNN are, with cmake -DMESHTRAIN_CUDA=ON",
                                   missing)};
}

}  // namespace

void set_up_environment() {
  ::setenv(kNcclSwitch.name, kNcclSwitch.value, 0);
}

bool has_library() {
  std::string reason;
  return !find_part(cuda_part(), reason).empty();
}

Runtime* load_runtime(std::string& reason) {
  Runtime* const runtime = load_part<Runtime>(cuda_part(), reason);
  return runtime != nullptr && runtime->device_count(reason) > 0 ? runtime : nullptr;
}

}  // namespace meshtrain::gpu
