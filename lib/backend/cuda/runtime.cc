// The one symbol of the library.
#include <fmt/format.h>

#include "backend/cuda/device.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/libraries.h"
#include "backend/gpu/device.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

class CudaRuntime final : public gpu::Runtime {
 public:
  int device_count(std::string& reason) override {
    return find_driver(reason) == nullptr ? 0 : num_devices();
  }
  // What is free is known in a context only. A device that gives none has nothing for this process.
  gpu::DeviceInfo info(int index) override {
    const gpu::DeviceInfo closed = device_info(index);
    try {
      return open_device(index, {})->info();
    } catch (const RuntimeFailure&) {
      return closed;
    }
  }
  std::unique_ptr<gpu::Device> open(int index, const gpu::DeviceOptions& options) override {
    return open_device(index, options);
  }
  std::vector<gpu::LibraryInfo> libraries() override { return library_infos(); }
  std::string make_id() override {
    ncclUniqueId id;
    const ncclResult_t status = nccl().ncclGetUniqueId(&id);
    if (status != ncclSuccess) {
      throw RuntimeFailure(ExitCode::kRankLost, fmt::format("ncclGetUniqueId failed: {}; {}",
                                                            nccl().ncclGetErrorString(status),
                                                            nccl().ncclGetLastError(nullptr)));
    }
    return {id.internal, sizeof(id.internal)};
  }
};

}  // namespace
}  // namespace meshtrain::cuda

extern "C" __attribute__((visibility("default"))) meshtrain::gpu::Runtime* meshtrain_gpu_runtime(
    int abi) {
  static meshtrain::cuda::CudaRuntime runtime;
  return abi == meshtrain::gpu::kAbi ? &runtime : nullptr;
}
