// The NVIDIA driver's own functions, opened when they are first needed.
//
// The program links no CUDA runtime. Every function of libcuda.so.1 keeps its binary interface for
// ever under its exported name (cuMemAlloc_v2), so one build serves the drivers of CUDA 12 and 13,
// whichever headers compiled it. A linked libcudart would be of one generation: that of CUDA 13
// refuses older drivers, that of CUDA 12.4 has no static library in NVIDIA's wheels. cuBLASLt,
// cuDNN and NCCL bring runtimes of their own, which use the context that is current here.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace meshtrain::cuda {

// Names as the driver exports them. Headers rename some functions by macros: `#name` stays as it
// is written here, and the types of both generations are equal for these.
// clang-format off
#define MESHTRAIN_DRIVER(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) \
  X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem_v2) \
  X(cuDeviceGetPCIBusId) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) \
  X(cuMemGetInfo_v2) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemHostAlloc) X(cuMemFreeHost) \
  X(cuMemsetD8Async) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuStreamCreate) \
  X(cuStreamDestroy_v2) X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamWaitEvent) \
  X(cuStreamBeginCapture_v2) X(cuStreamUpdateCaptureDependencies_v2) \
  X(cuStreamGetCaptureInfo_v3) X(cuStreamEndCapture) \
  X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
  X(cuEventElapsedTime) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) \
  X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncGetParamInfo) X(cuFuncLoad) \
  X(cuLaunchKernel) X(cuGraphDestroy) X(cuGraphAddEmptyNode) X(cuGraphInstantiateWithFlags) \
  X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy)
// clang-format on

struct Driver {
#define MESHTRAIN_FUNCTION(name) decltype(&::name) name = nullptr;
  MESHTRAIN_DRIVER(MESHTRAIN_FUNCTION)
#undef MESHTRAIN_FUNCTION
};

// The oldest CUDA version whose driver and headers have all of these functions.
constexpr int kOldestCuda = 12040;
static_assert(CUDA_VERSION >= kOldestCuda, "CUDA's headers must be of version 12.4 or newer");

// The driver, initialized, with at least one GPU. Null with `reason`, which names what is missing
// and the cure.
const Driver* find_driver(std::string& reason);
// Throws RuntimeFailure (exit 4) with that reason.
const Driver& driver();
int num_devices();
// The CUDA version that the driver supports, 13000 for 13.0; 0 where there is no driver.
int driver_version();
// "13.0" of 13000.
std::string version_text(int version);

inline CUdeviceptr device_address(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}
// Memory of the current device; null is ignored.
void free_memory(void* memory);

}  // namespace meshtrain::cuda
