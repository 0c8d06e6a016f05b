// A libcuda.so.1 that names a GPU and computes nothing:
//   FAKE_DRIVER_VERSION   of CUDA, 12040; FAKE_DRIVER_GPUS how many; FAKE_DRIVER_INIT what cuInit
//   says
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

int number_of(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

constexpr int kInvalidDevice = 101, kUnknown = 999;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  return number_of("FAKE_DRIVER_INIT");
}
int cuDriverGetVersion(int* version) {
  *version = number_of("FAKE_DRIVER_VERSION");
  return 0;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a made-up error";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = number_of("FAKE_DRIVER_GPUS");
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return index < number_of("FAKE_DRIVER_GPUS") ? 0 : kInvalidDevice;
}
int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "NVIDIA Fake");
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;  // compute capability 9.0
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = size_t{80} << 30;
  return 0;
}
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device));
  return 0;
}

// clang-format off
#define FAKE(name) int name() { return kUnknown; }
FAKE(cuDevicePrimaryCtxRetain) FAKE(cuCtxSetCurrent) FAKE(cuCtxSynchronize) FAKE(cuMemGetInfo_v2)
FAKE(cuMemAlloc_v2) FAKE(cuMemFree_v2) FAKE(cuMemHostAlloc) FAKE(cuMemFreeHost)
FAKE(cuMemsetD8Async) FAKE(cuMemcpyHtoDAsync_v2) FAKE(cuMemcpyDtoHAsync_v2) FAKE(cuStreamCreate)
FAKE(cuStreamDestroy_v2) FAKE(cuStreamQuery) FAKE(cuStreamSynchronize) FAKE(cuStreamWaitEvent)
FAKE(cuStreamEndCapture) FAKE(cuEventCreate) FAKE(cuEventDestroy_v2) FAKE(cuEventRecord)
FAKE(cuEventQuery) FAKE(cuEventSynchronize) FAKE(cuEventElapsedTime) FAKE(cuModuleLoadData)
FAKE(cuModuleUnload) FAKE(cuModuleGetFunction) FAKE(cuFuncGetAttribute) FAKE(cuFuncSetAttribute)
FAKE(cuLaunchKernel) FAKE(cuGraphDestroy) FAKE(cuGraphAddEmptyNode)
FAKE(cuGraphInstantiateWithFlags) FAKE(cuGraphUpload)
FAKE(cuGraphLaunch) FAKE(cuGraphExecDestroy) FAKE(cuFuncGetParamInfo) FAKE(cuFuncLoad)
FAKE(cuStreamBeginCapture_v2) FAKE(cuStreamGetCaptureInfo_v3)
FAKE(cuStreamUpdateCaptureDependencies_v2)
// clang-format on
}
