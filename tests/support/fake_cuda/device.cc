// Devices, contexts and memory of the fake driver.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "support/fake_cuda/exports.h"

namespace meshtrain::fake_cuda {
namespace {

constexpr int kVersion = 13000;
constexpr size_t kMostGarbage = size_t{4} << 20;
constexpr int kGarbage = 0xFF;  // NaN in every format

struct ErrorName {
  CUresult code;
  const char *name, *text;
};
constexpr ErrorName kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult error_text(CUresult code, const char** text, const char* ErrorName::*part) {
  const auto* const found =
      std::find_if(std::begin(kErrors), std::end(kErrors),
                   [&](const ErrorName& error) { return error.code == code; });
  *text = found == std::end(kErrors) ? nullptr : found->*part;
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

Device& device(CUdevice index) {
  if (!state().is_initialized)
    refuse(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
  if (index < 0 || index >= device_count())
    throw Failure{CUDA_ERROR_INVALID_DEVICE};
  return *state().devices[static_cast<size_t>(index)];
}

std::byte* bytes_at(CUdeviceptr address) {
  return reinterpret_cast<std::byte*>(address);
}

bool is_pinned(const void* begin, size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(begin);
  auto found = state().pinned.upper_bound(const_cast<std::byte*>(first));
  return found != state().pinned.begin() &&
         first + bytes <= (--found)->first + found->second.size();
}

// Memory goes also where the work that used it fails.
void finish_if_alive(Device& device) {
  try {
    if (device.error == CUDA_SUCCESS)
      finish(device);
  } catch (const Failure&) {
  }
}

// A copy may run at any time until the stream is waited for: the host's memory must not change.
void copy_up(Stream& stream, std::byte* to, const void* from, size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(from);
  const bool may_run_late = is_pinned(from, bytes);
  if (!may_run_late)
    refuse_in_capture(stream);
  enqueue(stream, "a copy to the device",
          at_once([=, &stream, kept = std::vector<std::byte>(first, first + bytes)] {
            check_range(*stream.device, to, bytes, "what is copied to");
            if (may_run_late && std::memcmp(kept.data(), first, bytes) != 0)
              refuse(CUDA_ERROR_INVALID_VALUE, "memory of the host changed before it was copied");
            std::memcpy(to, kept.data(), bytes);
          }));
}

// What is read before the copy has run is garbage.
void copy_down(Stream& stream, void* to, const std::byte* from, size_t bytes) {
  const bool may_run_late = is_pinned(to, bytes);
  if (!may_run_late)
    refuse_in_capture(stream);
  std::memset(to, kGarbage, bytes);
  enqueue(stream, "a copy to the host", at_once([=, &stream] {
            check_range(*stream.device, from, bytes, "what is copied from");
            std::memcpy(to, from, bytes);
          }));
  if (!may_run_late)
    finish(stream.last);
}

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;

MESHTRAIN_FAKE cuInit(unsigned) {
  return call("cuInit", [] { state().is_initialized = true; });
}
MESHTRAIN_FAKE cuDriverGetVersion(int* version) {
  *version = kVersion;
  return CUDA_SUCCESS;
}
MESHTRAIN_FAKE cuGetErrorName(CUresult code, const char** text) {
  return error_text(code, text, &ErrorName::name);
}
MESHTRAIN_FAKE cuGetErrorString(CUresult code, const char** text) {
  return error_text(code, text, &ErrorName::text);
}
MESHTRAIN_FAKE cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", [&] { *count = device_count(); });
}
MESHTRAIN_FAKE cuDeviceGet(CUdevice* out, int index) {
  return call("cuDeviceGet", [&] { *out = device(index).index; });
}
MESHTRAIN_FAKE cuDeviceGetName(char* name, int length, CUdevice index) {
  return call("cuDeviceGetName", [&] {
    device(index);
    std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
  });
}
MESHTRAIN_FAKE cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice index) {
  return call("cuDeviceGetAttribute", [&] {
    device(index);
    switch (which) {
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        return;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        return;
      default:
        refuse(CUDA_ERROR_INVALID_VALUE, "the fake knows no attribute {}", static_cast<int>(which));
    }
  });
}
MESHTRAIN_FAKE cuDeviceTotalMem_v2(size_t* bytes, CUdevice index) {
  return call("cuDeviceTotalMem", [&] {
    const auto& memory = device(index).memory;
    *bytes = static_cast<size_t>(memory.free_bytes() + memory.used_bytes());
  });
}
MESHTRAIN_FAKE cuDeviceGetPCIBusId(char* id, int length, CUdevice index) {
  return call("cuDeviceGetPCIBusId", [&] {
    const char* const first = std::getenv("MESHTRAIN_EMULATOR_FIRST");
    const int number = device(index).index + (first == nullptr ? 0 : std::atoi(first));
    std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", number);
  });
}
MESHTRAIN_FAKE cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice index) {
  return call("cuDevicePrimaryCtxRetain", [&] {
    ++device(index).retained;
    *context = device(index).context();
  });
}
MESHTRAIN_FAKE cuCtxSetCurrent(CUcontext context) {
  return call("cuCtxSetCurrent", [&] {
    for (const auto& one : state().devices) {
      if (one->context() == context && one->retained > 0)
        return set_current(one.get());
    }
    refuse(CUDA_ERROR_INVALID_CONTEXT, "there is no such context");
  });
}
MESHTRAIN_FAKE cuCtxSynchronize() {
  return call("cuCtxSynchronize", [] {
    for (auto& [handle, stream] : state().streams) {
      if (stream->device == &current_device())
        refuse_in_capture(*stream);
    }
    finish(current_device());
  });
}
MESHTRAIN_FAKE cuMemGetInfo_v2(size_t* free, size_t* total) {
  return call("cuMemGetInfo", [&] {
    const auto& memory = current_device().memory;
    *free = static_cast<size_t>(memory.free_bytes());
    *total = static_cast<size_t>(memory.free_bytes() + memory.used_bytes());
  });
}
MESHTRAIN_FAKE cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return call("cuMemAlloc", [&] {
    if (bytes == 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
    Device& device = current_device();
    refuse_while_capturing(device, "an allocation");
    std::byte* const memory =
        is_memory_short() ? nullptr : device.memory.allocate(static_cast<int64_t>(bytes));
    if (memory == nullptr)
      throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    std::memset(memory, kGarbage, std::min(bytes, kMostGarbage));
    *address = reinterpret_cast<CUdeviceptr>(memory);
  });
}
// Waits for all work of the device, as the real one does.
MESHTRAIN_FAKE cuMemFree_v2(CUdeviceptr address) {
  return call("cuMemFree", [&] {
    Device* const device = device_of(bytes_at(address));
    if (device == nullptr || !device->memory.blocks().contains(bytes_at(address)))
      refuse(CUDA_ERROR_INVALID_VALUE, "no allocation begins at {:x}, or not any more", address);
    refuse_while_capturing(*device, "memory is freed");
    finish_if_alive(*device);
    device->memory.free(bytes_at(address));
  });
}
MESHTRAIN_FAKE cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  return call("cuMemHostAlloc", [&] {
    current_device();
    if (bytes == 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
    if (is_memory_short())
      throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    std::vector<std::byte> memory(bytes, std::byte{kGarbage});
    *address = memory.data();
    state().pinned.emplace(memory.data(), std::move(memory));
  });
}
MESHTRAIN_FAKE cuMemFreeHost(void* address) {
  return call("cuMemFreeHost", [&] {
    if (!state().pinned.contains(static_cast<std::byte*>(address)))
      refuse(CUDA_ERROR_INVALID_VALUE, "no pinned memory begins at {}", address);
    for (const auto& device : state().devices)
      finish_if_alive(*device);
    state().pinned.erase(static_cast<std::byte*>(address));
  });
}
MESHTRAIN_FAKE cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes,
                               CUstream handle) {
  return call("cuMemsetD8Async", [&] {
    Stream& stream = stream_of(handle);
    check_range(*stream.device, bytes_at(address), bytes, "what is set");
    enqueue(stream, "cuMemsetD8Async", at_once([=, &stream] {
              check_range(*stream.device, bytes_at(address), bytes, "what is set");
              std::memset(bytes_at(address), value, bytes);
            }));
  });
}
MESHTRAIN_FAKE cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                    CUstream handle) {
  return call("cuMemcpyHtoDAsync", [&] {
    Stream& stream = stream_of(handle);
    check_range(*stream.device, bytes_at(to), bytes, "what is copied to");
    copy_up(stream, bytes_at(to), from, bytes);
  });
}
MESHTRAIN_FAKE cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream handle) {
  return call("cuMemcpyDtoHAsync", [&] {
    Stream& stream = stream_of(handle);
    check_range(*stream.device, bytes_at(from), bytes, "what is copied from");
    copy_down(stream, to, bytes_at(from), bytes);
  });
}
