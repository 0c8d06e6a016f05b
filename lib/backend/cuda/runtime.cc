// The one symbol of the library.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>

#include "backend/cuda/device.h"
#include "backend/cuda/libraries.h"
#include "backend/gpu/device.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

// Why cudaGetDeviceCount found nothing, as a sentence.
std::string explain(cudaError_t status) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess)
    driver = 0;
  if (driver == 0)
    return "there is no NVIDIA driver here (libcuda.so.1 was not found)";
  if (status == cudaErrorInsufficientDriver) {
    return fmt::format(
        "the NVIDIA driver is for CUDA {}, and this build needs CUDA {}: install a "
        "newer driver",
        version_text(driver), version_text(CUDART_VERSION));
  }
  std::string text = status == cudaSuccess || status == cudaErrorNoDevice
                         ? "the NVIDIA driver finds no GPU"
                         : fmt::format("cudaGetDeviceCount failed: {} ({})",
                                       cudaGetErrorString(status), cudaGetErrorName(status));
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    text += fmt::format(" (CUDA_VISIBLE_DEVICES is \"{}\")", visible);
  return text;
}

class CudaRuntime final : public gpu::Runtime {
 public:
  int device_count(std::string& reason) override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0)
      return count;
    cudaGetLastError();
    reason = explain(status);
    return 0;
  }
  gpu::DeviceInfo info(int index) override { return device_info(index); }
  std::unique_ptr<gpu::Device> open(int index, const gpu::DeviceOptions& options) override {
    return open_device(index, options);
  }
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
